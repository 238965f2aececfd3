"""LibreTranslate's API: what its documentation and its own tests say of every request, ours says too."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.serve.conftest import Start
from tests.serve.doubles import Backwards, backwards

GOOD = {"q": "Hallo", "source": "de", "target": "en"}


def said(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["error"]


@pytest.mark.parametrize("how", ["json", "data", "params"])
def test_a_text_is_translated_from_json_a_form_or_the_address(client: TestClient, how: str) -> None:
    response = client.post("/translate", **{how: {**GOOD, "format": "text"}})
    assert (response.status_code, response.json()) == (200, {"translatedText": "ollaH"})


def test_a_form_need_not_be_escaped(client: TestClient) -> None:
    media = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = client.post("/translate", content="q=我a+%C3%BC;&source=zh&target=en".encode(), headers=media)
    assert answer.json() == {"translatedText": ";ü a我"}


PART = b"--x\r\nContent-Disposition: form-data; name=%s\r\n\r\n%s\r\n"


@pytest.mark.parametrize("text", [b"\xce\xd2", b"%CE%D2"])
@pytest.mark.parametrize("path", ["/translate", "/detect"])
def test_what_is_not_utf8_is_refused(client: TestClient, path: str, text: bytes) -> None:
    form = b"q=%s&source=zh&target=en" % text
    written = client.post(path, content=form, headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert said(written) == (400, "Invalid request: the form is not UTF-8")
    assert said(client.post(f"{path}?q=%CE%D2&source=zh&target=en")) == (
        400,
        "Invalid request: the address is not UTF-8",
    )


def test_a_form_in_parts_that_is_not_utf8_is_refused(client: TestClient) -> None:
    parts = b"".join(PART % one for one in ((b"q", b"\xce\xd2"), (b"source", b"zh"), (b"target", b"en")))
    answer = client.post(
        "/translate", content=parts + b"--x--\r\n", headers={"Content-Type": "multipart/form-data; boundary=x"}
    )
    assert said(answer) == (400, "Invalid request: the form is not UTF-8")


def test_a_form_may_come_in_parts(client: TestClient) -> None:
    response = client.post("/translate", files={name: (None, value) for name, value in GOOD.items()})
    assert response.json() == {"translatedText": "ollaH"}


def test_several_texts_come_back_as_a_list_in_their_order(client: TestClient) -> None:
    response = client.post("/translate", json={**GOOD, "q": ["eins", "zwei zwei", "", "drei"]})
    assert response.json() == {"translatedText": ["snie", "iewz iewz", "", "ierd"]}


def test_alternatives_are_other_translations(client: TestClient) -> None:
    one = client.post("/translate", json={**GOOD, "alternatives": 2}).json()
    assert one == {"translatedText": "ollaH", "alternatives": ["ollaH'", "ollaH''"]}
    two = client.post("/translate", json={**GOOD, "q": ["ab", "cd"], "alternatives": 1}).json()
    assert two == {"translatedText": ["ba", "dc"], "alternatives": [["ba'"], ["dc'"]]}
    form = client.post("/translate", data={**GOOD, "alternatives": "1"}).json()
    assert form["alternatives"] == ["ollaH'"]


def test_the_language_is_found_out_if_it_is_not_known(client: TestClient) -> None:
    text = "Das ist ein langer deutscher Satz, den man leicht erkennen kann."
    answer = client.post("/translate", json={"q": text, "source": "auto", "target": "en"}).json()
    assert answer["detectedLanguage"]["language"] == "de" and answer["detectedLanguage"]["confidence"] > 60
    several = client.post(
        "/translate", json={"q": [text, "我昨天在北京吃了一个很大的苹果。"], "source": "auto", "target": "en"}
    )
    found = several.json()["detectedLanguage"]
    assert [one["language"] for one in found] == ["de", "zh"]


def test_a_text_in_the_target_language_is_left_alone(client: TestClient) -> None:
    text = "This is a sentence written in English for testing purposes."
    answer = client.post("/translate", json={"q": text, "source": "auto", "target": "en"}).json()
    assert answer["translatedText"] == text and answer["detectedLanguage"]["language"] == "en"
    assert client.post("/translate", json={**GOOD, "source": "en"}).json() == {"translatedText": "Hallo"}


def test_varieties_of_a_language_are_that_language(client: TestClient) -> None:
    assert client.post("/translate", json={**GOOD, "source": "de-AT", "target": "EN_us"}).status_code == 200


def test_what_has_no_letters_is_left_alone(client: TestClient) -> None:
    assert client.post("/translate", json={**GOOD, "q": ["😀", "…", "  "]}).json()["translatedText"] == [
        "😀",
        "…",
        "  ",
    ]


def test_lines_and_sentences_are_translated_each_by_itself(start: Start) -> None:
    translator = Backwards()
    client = start(backwards(translator=translator))
    text = "  Hallo Welt! Wie geht's?\n\nDr. Kurz kommt am 3. Mai.\r\n"
    assert client.post("/translate", json={**GOOD, "q": text}).json()["translatedText"] == (
        "  !tleW ollaH ?s'theg eiW\n\n.iaM .3 ma tmmok zruK .rD\r\n"
    )
    sentences = sorted(text for batch in translator.batches for text in batch)
    assert sentences == ["Dr. Kurz kommt am 3. Mai.", "Hallo Welt!", "Wie geht's?"]


def test_a_sentence_that_is_too_long_for_the_model_is_cut(start: Start) -> None:
    translator = Backwards(longest=20)
    client = start(backwards(translator=translator))
    for text in ("eins zwei drei, vier fünf sechs, sieben acht neun", "x" * 300, "一二三四五六七八九十" * 20):
        answer = client.post("/translate", json={**GOOD, "q": text}).json()["translatedText"]
        assert sorted(answer.replace(" ", "")) == sorted(text.replace(" ", ""))
    assert max(len(text) for batch in translator.batches for text in batch) < 20


def test_markup_stays_and_what_is_between_is_translated(client: TestClient) -> None:
    text = '<p class="a">Hallo <b>Welt</b> &amp; ihr<br/></p><script>let x = "y";</script><!-- nicht -->'
    answer = client.post("/translate", json={**GOOD, "q": text, "format": "html"}).json()
    assert answer["translatedText"] == (
        '<p class="a">ollaH <b>tleW</b> rhi &amp;<br/></p><script>let x = "y";</script><!-- nicht -->'
    )
    batch = client.post("/translate", json={**GOOD, "q": ["<p>ab</p>", "<i>"], "format": "html", "alternatives": 1})
    assert batch.json() == {"translatedText": ["<p>ba</p>", "<i>"], "alternatives": [[], []]}


@pytest.mark.parametrize("html", ["<br>", "<img src=x>", "<code>x</code>", "<p></p>", "<![&["])
def test_markup_without_a_text_comes_back(client: TestClient, html: str) -> None:
    answer = client.post("/translate", json={**GOOD, "q": html, "format": "html"})
    assert answer.status_code == 200
    assert answer.json()["translatedText"].replace("&amp;", "&").replace("&lt;", "<") == html


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q": None}, "Invalid request: missing q parameter"),
        ({"q": ""}, "Invalid request: missing q parameter"),
        ({"q": []}, "Invalid request: missing q parameter"),
        ({"source": None}, "Invalid request: missing source parameter"),
        ({"target": None}, "Invalid request: missing target parameter"),
        ({"source": "zz"}, "zz is not supported"),
        ({"target": "zz"}, "zz is not supported"),
        ({"format": "xml"}, "xml format is not supported"),
        ({"alternatives": "abc"}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": 9}, "Invalid request: alternatives parameter must be <= 8"),
        ({"q": "x" * 5001}, "Invalid request: request (5001) exceeds text limit (5000)"),
        ({"q": ["a"] * 65}, "Invalid request: request (65) exceeds text limit (64)"),
        ({"source": "en", "target": "de"}, "German (de) is not available as a target language from English (en)"),
    ],
)
def test_every_mistake_is_answered_in_libretranslates_words(
    client: TestClient, changes: dict[str, Any], message: str
) -> None:
    fields = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    assert said(client.post("/translate", json=fields)) == (400, message)
    if not isinstance(fields.get("q"), list):
        assert said(client.post("/translate", data=fields)) == (400, message)


def test_a_body_that_is_no_object_is_refused(client: TestClient) -> None:
    assert said(client.post("/translate", json=["not", "a", "dict"])) == (400, "Invalid JSON format")
    broken = client.post("/translate", content=b"{", headers={"content-type": "application/json"})
    assert said(broken) == (400, "Invalid JSON format")


def test_what_is_given_must_be_text(client: TestClient) -> None:
    assert said(client.post("/translate", json={**GOOD, "q": 7}))[0] == 400
    assert said(client.post("/translate", json={**GOOD, "q": ["a", None]}))[0] == 400
    assert said(client.post("/translate", json={**GOOD, "source": ["de"]}))[0] == 400


def test_languages_name_their_targets_themselves_included(client: TestClient) -> None:
    assert client.get("/languages").json() == [
        {"code": "de", "name": "German", "targets": ["de", "en"]},
        {"code": "en", "name": "English", "targets": ["en"]},
        {"code": "zh", "name": "Chinese", "targets": ["en", "zh"]},
    ]


def test_detection_ranks_languages_and_doubts_short_texts(client: TestClient) -> None:
    long = client.post("/detect", data={"q": "Esta estación de tren no está en la ciudad, ¿verdad?"}).json()
    german = client.post("/detect", json={"q": "Wo ist denn hier bitte der nächste Bahnhof, junger Mann?"}).json()
    short = client.post("/detect", json={"q": "ja"}).json()
    chinese = client.post("/detect", json={"q": ["我吃了", "一个苹果"]}).json()
    assert german[0]["language"] == "de" and german[0]["confidence"] > 80
    assert chinese[0]["language"] == "zh"
    assert short[0]["confidence"] < 20 and long[0]["confidence"] < 20
    assert client.post("/detect", json={"q": "12345"}).json() == [{"confidence": 0.0, "language": "en"}]


def test_detection_wants_a_text_and_a_post(client: TestClient) -> None:
    assert said(client.post("/detect")) == (400, "Invalid request: missing q parameter")
    assert client.get("/detect").status_code == 405


def test_health_says_what_libretranslate_says(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.post("/health").status_code == 405


def test_what_is_not_done_here_is_refused_as_libretranslate_refuses_it(client: TestClient) -> None:
    assert said(client.post("/suggest", json={})) == (403, "Suggestions are disabled on this server.")
    assert said(client.post("/translate_file")) == (403, "Files translation are disabled on this server.")
    settings = client.get("/frontend/settings").json()
    assert settings["charLimit"] == 5000 and settings["language"]["target"] == {"code": "en", "name": "English"}


def test_a_model_that_names_no_languages_takes_any(start: Start) -> None:
    client = start(backwards(sources=(), target=None))
    assert client.get("/languages").json() == [{"code": "und", "name": "Unknown", "targets": ["und"]}]
    assert client.post("/translate", json={**GOOD, "source": "fr"}).json() == {"translatedText": "ollaH"}
    auto = client.post("/translate", json={**GOOD, "source": "auto"})
    assert auto.status_code == 200 and auto.json()["translatedText"] == "ollaH"


def test_the_first_model_that_fits_translates_unless_another_is_named(start: Start) -> None:
    first, second = Backwards(), Backwards()
    client = start(backwards("first", first), backwards("second", second))
    client.post("/translate", json=GOOD)
    assert (len(first.batches), len(second.batches)) == (1, 0)
    client.post("/translate", json={**GOOD, "model": "second"})
    assert (len(first.batches), len(second.batches)) == (1, 1)
    assert said(client.post("/translate", json={**GOOD, "model": "secnd"})) == (
        400, "there is no model of that name: did you mean 'second'?",
    )  # fmt: skip
