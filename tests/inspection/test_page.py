"""The page as a file: whole in itself, no address in it, tokens that cannot break out, and a bearable size."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.inspection.made_up_views import big_view, language_model_view, nasty_view, reader_view, small_view

from clearhead.errors import DataError, StorageError
from clearhead.inspection import page
from clearhead.inspection.page import MODULES, module_source, page_html, write_page

ASSETS = Path(page.__file__).with_name("page")


class Elements(HTMLParser):
    """The elements of a document with what stands in them, as a browser's parser finds them."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self.inside = False
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))
        self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            tag, attributes, text = self.found[-1]
            self.found[-1] = (tag, attributes, text + data)

    def of(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attributes, text) for name, attributes, text in self.found if name == tag]


def stored_view(document: str) -> Any:
    scripts = {attributes.get("id"): text for attributes, text in Elements(document).of("script")}
    return json.loads(scripts["view"])


@pytest.mark.parametrize("make", [small_view, nasty_view, language_model_view, reader_view])
def test_the_page_carries_its_view_to_the_letter(make: Any) -> None:
    assert stored_view(page_html(make())) == make()


def test_tokens_that_look_like_markup_make_no_element() -> None:
    plain, nasty = Elements(page_html(small_view())), Elements(page_html(nasty_view()))
    assert [tag for tag, _, _ in nasty.found] == [tag for tag, _, _ in plain.found]
    assert len(nasty.of("script")) == 2


def test_the_data_hold_nothing_a_parser_of_html_could_take_for_its_own() -> None:
    document = page_html(nasty_view())
    data = document.split('id="view">')[1].split("</script>")[0]
    assert data.isascii() and not set("<>&") & set(data)
    assert "\u2028" not in document and "\u202e" not in data


def test_a_view_with_a_number_that_is_none_is_refused_rather_than_written_as_broken_json() -> None:
    view = small_view()
    view["heads"][0]["measures"]["entropy"] = float("nan")
    with pytest.raises(ValueError, match="Out of range float"):
        page_html(view)


def test_the_page_names_no_address_and_loads_nothing() -> None:
    document = page_html(small_view())
    # The names of the SVG and XML vocabularies are not fetched by anyone.
    addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w{2,}[^\s\"'`]*", document))
    assert addresses == {"http://www.w3.org/2000/svg", "http://www.w3.org/XML/1998/namespace"}
    for tag, attributes, _ in Elements(document).found:
        assert not {"src", "href", "srcset", "data", "action"} & set(attributes), tag
    assert not re.search(r"@import|\bfetch\(|XMLHttpRequest|WebSocket|sendBeacon|EventSource|\bimport\(", document)


def test_the_policy_allows_this_script_and_this_style_and_nothing_else() -> None:
    elements = Elements(page_html(small_view()))
    (policy,) = [a["content"] for a, _ in elements.of("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.split(" ", 1) for rule in (policy or "").split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert "unsafe" not in (policy or "")
    (script,) = [text for attributes, text in elements.of("script") if attributes.get("type") == "module"]
    ((_, style),) = elements.of("style")
    for name, text in (("script-src", script), ("style-src", style)):
        assert rules[name] == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_no_string_becomes_markup_or_code_in_the_module() -> None:
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|createContextualFragment"
    assert not re.search(forbidden, module_source())


def test_every_module_is_listed_once_and_after_those_it_imports() -> None:
    assert sorted(MODULES) == sorted(path.name for path in ASSETS.glob("*.js"))
    for place, name in enumerate(MODULES):
        text = (ASSETS / name).read_text(encoding="utf-8")
        for names, origin in re.findall(r"^import \{([^}]*)\} from \"\./([\w.]+)\";$", text, re.MULTILINE):
            assert origin in MODULES[:place], (name, origin)
            exported = (ASSETS / origin).read_text(encoding="utf-8")
            for imported in filter(None, map(str.strip, names.split(","))):
                assert re.search(rf"^export (?:async )?(?:const|function|class) {imported}\b", exported, re.MULTILINE)


def test_put_together_the_modules_need_no_statement_and_share_no_name() -> None:
    source = module_source()
    assert not re.search(r"^(?:import|export)\b", source, re.MULTILINE)
    names = re.findall(r"^(?:async )?(?:const|let|function|class) (\w+)", source, re.MULTILINE)
    assert len(names) == len(set(names)) > 40


def test_every_phrase_is_there_in_both_languages_with_the_same_gaps() -> None:
    text = (ASSETS / "words.js").read_text(encoding="utf-8")
    entry = re.compile(r"^  \"([\w.]+)\": \[\s*(\"(?:[^\"\\]|\\.)*\"),\s*(\"(?:[^\"\\]|\\.)*\"),?\s*\],$", re.MULTILINE)
    table = {name: (json.loads(english), json.loads(chinese)) for name, english, chinese in entry.findall(text)}
    assert len(table) == len(re.findall(r"^  \"", text, re.MULTILINE)) > 100
    for name, (english, chinese) in table.items():
        assert english and chinese, name
        assert set(re.findall(r"\{\w+\}", english)) == set(re.findall(r"\{\w+\}", chinese)), name
    used = set(re.findall(r"\bsay\(\"([\w.]+)\"", module_source()))
    assert used - set(table) == set()


def test_the_largest_page_stays_under_15_megabytes() -> None:
    assert len(page_html(big_view()).encode()) < 15_000_000


def test_the_file_is_the_page(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", small_view())
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page_html(small_view())
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot write .*nowhere/page.html: No such file or directory"):
        write_page(tmp_path / "nowhere" / "page.html", small_view())


@pytest.mark.parametrize("change", [{"version": 2}, {"format": "something"}])
def test_a_view_of_another_kind_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="a page shows a 'clearhead-view' of version 1, not"):
        page_html({**small_view(), **change})
