"""The live page in a real browser, with a real model: translation, attention, heads switched off, both languages."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.serve import made_up_models
from tests.serve.doubles import backwards
from tests.serve.here import Here
from tests.serve.processes import Process, serving
from tests.shared.chromium import launched, needs_chromium

from clearhead.serve.keys import Keys

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
pytestmark = needs_chromium

PICTURES = os.environ.get("CLEARHEAD_PICTURES")
"""A folder for pictures of what the tests see, if anybody wants to look."""
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched(playwright) as browser:
        yield browser


@pytest.fixture(scope="module")
def server(trained: Path, bytewise: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    root = tmp_path_factory.mktemp("served")
    others = [
        made_up_models.gpt(root / "shakespeare"),
        made_up_models.classifier(root / "reviews"),
        made_up_models.bert(root / "gaps"),
    ]
    with serving(trained, bytewise, *others) as started:
        yield started


@pytest.fixture
def open_page(browser: Any, server: Process) -> Iterator[Open]:
    """The page of the server; afterwards the test fails on any request elsewhere and any error in the console."""
    contexts, wrong = [], []

    def requested(request: Any) -> None:
        if not request.url.startswith((server.address, "data:", "blob:")):
            wrong.append(f"asked for {request.url}")

    def opened(hash: str = "", width: int = 1280, height: int = 1000, **settings: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, **{"locale": "en-GB", **settings})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("request", requested)
        page.on("console", lambda said: said.type in ("error", "warning") and wrong.append(said.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(f"a dialog: {dialog.message}"))
        page.goto(f"{server.address}/{hash}")
        page.locator("textarea").wait_for()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def picture(page: Any, name: str) -> None:
    if PICTURES:
        page.wait_for_timeout(200)
        page.screenshot(path=f"{PICTURES}/{name}.png", full_page=True)


def write(page: Any, text: str) -> str:
    """Type a text, and wait for what becomes of it and for the view of it."""
    with page.expect_response("**/attention") as answered:
        page.locator("textarea").fill(text)
    assert answered.value.status == 200
    tokens = answered.value.json()["view"]["tokens"]["source"]
    page.wait_for_function(
        "count => document.querySelectorAll('.tokens')[0]?.querySelectorAll('button').length === count", arg=len(tokens)
    )
    return str(page.locator(".made").text_content())


def test_a_text_is_translated_and_looked_into_as_it_is_typed(open_page: Open) -> None:
    page = open_page()
    assert "appears here" in page.locator(".inside").text_content()
    assert re.fullmatch(r"[\d,]+ parameters · (CTranslate2|PyTorch)", page.locator(".size").text_content())
    picture(page, "empty")
    made = write(page, "dreizehn")
    assert made and page.locator(".tokens").nth(0).locator("button").all_text_contents() == [*"dreizehn", "</s>"]
    assert page.locator(".count").text_content() == "8 of 5,000 characters"
    assert re.match(r"\d+\.\d\d s", page.locator(".status").text_content())
    picture(page, "wide")
    for tab in ("Map", "Gallery", "Generation"):
        page.get_by_role("tab", name=tab).click()
        picture(page, f"wide-{tab.lower()}")
    # The chosen view stays when the text changes.
    with page.expect_response("**/attention"):
        page.locator("textarea").fill("vierzehn")
    assert page.get_by_role("tab", name="Generation").get_attribute("aria-selected") == "true"


def test_heads_are_switched_off_and_the_text_changes(open_page: Open) -> None:
    page = open_page("#kind=cross")
    whole = write(page, "siebzehn")
    assert page.locator(".changes").is_hidden()
    with page.expect_request("**/attention") as asked:
        page.get_by_role("button", name="Switch off and see what changes").click()
    assert asked.value.post_data_json["ablate"] == ["decoder.0.cross.0", "decoder.0.cross.1"]
    page.locator(".changes").wait_for()
    lines = page.locator(".change bdi").all_text_contents()
    assert lines[0] == whole and lines[1] != whole and page.locator(".changes mark").count() > 0
    assert "Switched off: decoder.0.cross.0, decoder.0.cross.1" in page.locator(".inside header").text_content()
    assert page.locator(".picker-cell.off").count() == 2
    picture(page, "switched-off")
    page.locator('[data-key="pick-0,0"]').click()
    page.get_by_role("button", name="Switch on again").click()
    page.wait_for_function("() => document.querySelectorAll('.picker-cell.off').length === 1")
    assert "Without decoder.0.cross.1" in page.locator(".changes").text_content()
    page.get_by_role("button", name="Switch all on").click()
    page.locator(".changes").wait_for(state="hidden")
    assert page.locator(".picker-cell.off").count() == 0


def test_every_sentence_can_be_looked_into(open_page: Open) -> None:
    page = open_page()
    made = write(page, "eins. Zwei!\ndrei")
    assert made.count("\n") == 1
    choices = page.locator(".sentences [role=radio]")
    assert choices.all_text_contents() == ["eins.", "Zwei!", "drei"]
    with page.expect_response("**/attention"):
        choices.nth(2).click()
    page.wait_for_function("() => document.querySelectorAll('.tokens')[0].querySelectorAll('button').length === 5")
    assert page.locator(".tokens").nth(0).locator("button").all_text_contents() == [*"drei", "</s>"]
    picture(page, "sentences")


def test_another_model_is_picked(open_page: Open, server: Process) -> None:
    page = open_page()
    write(page, "acht")
    with page.expect_request("**/translate") as asked:
        page.get_by_label("Model").select_option("bytewise")
    assert asked.value.post_data_json["model"] == "bytewise"
    assert page.locator("textarea").input_value() == "acht"


def test_both_languages_and_the_address_keeps_them(open_page: Open) -> None:
    page = open_page(locale="zh-CN")
    write(page, "neunzehn")
    assert page.get_by_role("tab", name="句子").is_visible() and "字符" in page.locator(".count").text_content()
    picture(page, "chinese")
    page.get_by_role("radio", name="English").click()
    assert page.get_by_role("tab", name="Sentence").is_visible() and "language=en" in page.url
    assert page.locator("textarea").input_value() == "neunzehn" and page.locator(".made").text_content()
    page.get_by_role("radio", name="Dark").click()
    assert page.locator("#live").get_attribute("data-theme") == "dark" and "theme=dark" in page.url
    assert page.locator(".inside .clearhead").get_attribute("data-theme") == "dark"
    picture(page, "dark")
    page.reload()
    page.locator("textarea").wait_for()
    assert page.locator("#live").get_attribute("data-theme") == "dark"


def test_markup_in_a_text_stays_text(open_page: Open) -> None:
    page = open_page()
    page.get_by_label("Model").select_option("bytewise")
    write(page, "<img src=x onerror=alert(1)> </script><b>eins</b> & \u202eoben")
    assert page.locator("img, b, iframe").count() == 0 and page.locator("script").count() == 1
    shown = "".join(page.locator(".tokens").nth(0).locator("button").all_text_contents())
    assert "<img▁src=x▁onerror=alert(1)>" in shown and "</script>" in shown
    for tab in ("Map", "Gallery", "Generation"):
        page.get_by_role("tab", name=tab).click()
        assert page.locator("img, b, iframe").count() == 0


def test_a_phone_never_scrolls_sideways(open_page: Open) -> None:
    page = open_page(width=360, height=740, has_touch=True)
    write(page, "siebenundachtzig. Einundzwanzig. Neunundneunzig")
    picture(page, "phone")
    for tab in ("Sentence", "Map", "Gallery", "Generation"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_timeout(60)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, tab
    page.get_by_role("tab", name="Sentence").click()
    page.locator("details.heads summary").click()
    page.get_by_role("button", name="Switch off and see what changes").click()
    page.locator(".changes").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    picture(page, "phone-switched-off")


def test_a_language_model_writes_as_it_goes_and_can_be_stopped(open_page: Open) -> None:
    page = open_page()
    write(page, "eins")
    page.get_by_label("Model").select_option("shakespeare")
    # What the other model looked at is gone.
    assert "appears here" in page.locator(".inside").text_content() and not page.locator(".made").text_content()
    page.locator("textarea").fill("to be")
    page.get_by_label("Tokens").fill("12")
    page.get_by_label("Temperature").fill("0")
    with page.expect_response("**/attention") as looked:
        page.get_by_role("button", name="Continue").click()
    made = page.locator(".made").text_content()
    assert made.startswith("to be") and len(made) > len("to be")
    assert looked.value.request.post_data_json["text"] == made
    page.locator(".stage > *").wait_for()
    assert page.get_by_role("radio", name="Decoder").is_visible()
    picture(page, "writing")
    page.get_by_label("Tokens").fill("1000")
    page.get_by_role("button", name="Continue").click()
    page.wait_for_function("() => document.querySelector('.made').textContent.length > 60")
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Continue").wait_for()


def test_a_classifier_shows_its_labels_and_a_bert_fills_gaps(open_page: Open) -> None:
    page = open_page()
    page.get_by_label("Model").select_option("reviews")
    with page.expect_response("**/attention"):
        page.locator("textarea").fill("that is the question")
    assert sorted(page.locator(".made .bar-name").all_text_contents()) == ["bad", "good", "so-so"]
    picture(page, "classifying")
    page.get_by_label("Model").select_option("gaps")
    with page.expect_response("**/attention") as looked:
        page.locator("textarea").fill("to be or [MASK] to be")
    page.wait_for_function("() => document.querySelector('.made').textContent.length > 0")
    assert page.locator(".made").text_content() == looked.value.json()["text"]
    picture(page, "filling")


def test_a_key_is_asked_for_as_a_password(browser: Any) -> None:
    with Here(backwards(inspector=None), policy={"keys": Keys(["a-good-long-key"])}) as locked:
        stranger = browser.new_context()
        refused = stranger.request.get(locked.address)
        assert refused.status == 401 and refused.headers["www-authenticate"].startswith("Basic ")
        stranger.close()
        friend = browser.new_context(http_credentials={"username": "me", "password": "a-good-long-key"})
        page = friend.new_page()
        page.goto(locked.address)
        page.locator("textarea").fill("Hallo")
        page.wait_for_function("() => document.querySelector('.made').textContent === 'ollaH'")
        assert "cannot be looked into" in page.locator(".inside").text_content()
        friend.close()


BUSY_ONCE = """() => {
  const plain = window.fetch;
  window.fetch = (path, options) => {
    window.fetch = plain;
    return Promise.resolve(new Response('{"error": "busy"}', { status: 503, headers: { "Retry-After": "1" } }));
  };
}"""


def test_what_the_server_refuses_is_shown_in_its_words(open_page: Open) -> None:
    page = open_page()
    write(page, "eins")
    # The console reports every refusal that comes over the network, so these are made up.
    page.evaluate(BUSY_ONCE)
    page.locator("textarea").fill("zwei")
    page.wait_for_function("() => document.querySelector('.status').textContent.includes('trying again')")
    page.wait_for_function("() => /^\\d/.test(document.querySelector('.status').textContent)")
    page.evaluate('() => { window.fetch = async () => new Response(\'{"error": "no <b>way</b>"}\', { status: 400 }); }')
    page.locator("textarea").fill("drei")
    page.wait_for_function("() => document.querySelector('.status.wrong')")
    assert page.locator(".status").text_content() == "no <b>way</b>"
    page.evaluate("() => { window.fetch = async () => { throw new TypeError('gone'); }; }")
    page.locator("textarea").fill("vier")
    page.wait_for_function("() => document.querySelector('.status').textContent.includes('Is it still running')")


def test_the_documentation_is_a_page_without_scripts(open_page: Open) -> None:
    page = open_page()
    page.locator("a.docs").click()
    page.locator("h1").wait_for()
    assert "/v1/completions" in page.locator("main").inner_text() and page.locator("script").count() == 0
    picture(page, "docs")


def test_what_a_screen_reader_is_told(open_page: Open) -> None:
    page = open_page()
    write(page, "zehn")
    tree = page.locator("body").aria_snapshot()
    for line in (
        '- combobox "Model"', '- heading "Try a model and look inside" [level=1]', '- textbox "Text"',
        '- radiogroup "Theme"', '- radiogroup "Language"', '- tab "Sentence" [selected]', '- grid "Layers and heads"',
    ):  # fmt: skip
        assert line in tree, line
