"""HTML is taken apart into texts and put together again, whatever is in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.serve.markup import take_marked

MARKS = ("<p>", "</p>", "<br/>", "<code>", "</code>", "<!--", "-->", "<![CDATA[", "]]>", "<![", "<?", "&amp;", "&")


@given(
    st.lists(st.sampled_from([*MARKS, *"ab<>/!-&;#='\" \n\r"]) | st.characters(exclude_categories=["Cs"])).map("".join)
)
def test_all_of_any_markup_is_in_its_parts(text: str) -> None:
    assert "".join(take_marked(text).parts) == text


@pytest.mark.parametrize(
    ("html", "texts"),
    [
        ("R&D", ["R&D"]),
        ("<p>AT&T rocks</p>", ["AT&T rocks"]),
        ("<code>a&b c</code>&#228;&auml", ["ää"]),
        ("<![CDATA[ab]]>x", ["x"]),
        ("<![&[", ["<![&["]),
        ("<br>", []),
        ("", []),
    ],
)
def test_an_ampersand_or_an_odd_declaration_loses_nothing(html: str, texts: list[str]) -> None:
    assert take_marked(html).texts == texts


@given(st.text(st.sampled_from("ab<>/!-&;#='\" \n") | st.characters(exclude_categories=["Cs", "Cc"]), max_size=80))
def test_any_markup_is_taken_apart_and_everything_but_its_texts_stays(text: str) -> None:
    marked = take_marked(text)
    others = [part for place, part in enumerate(marked.parts) if place not in marked.places]
    whole = marked.together(["\x01"] * len(marked.places))
    assert [part for part in whole.split("\x01") if part] == _joined(marked.parts, marked.places)
    assert "".join(others) == whole.replace("\x01", "")


def _joined(parts: tuple[str, ...], places: tuple[int, ...]) -> list[str]:
    """What stands between texts."""
    runs, run = [], ""
    for place, part in enumerate(parts):
        if place in places:
            runs.append(run)
            run = ""
        else:
            run += part
    return [one for one in [*runs, run] if one]


def test_tags_scripts_and_comments_stay_as_they_are() -> None:
    html = "<!doctype html><p title='a > b'>eins<br/>zwei</p><style>p { x: y }</style><!-- nein --><pre>code</pre>"
    marked = take_marked(html)
    assert marked.texts == ["eins", "zwei"]
    assert marked.together(marked.texts) == html
    assert marked.together(["<1>", "&"]).startswith("<!doctype html><p title='a > b'>&lt;1&gt;<br/>&amp;</p>")
