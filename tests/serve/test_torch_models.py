"""Real models behind the server: its reply equals the library's, alone and in company; who leaves ends in a step."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.serve.conftest import Start

import clearhead
from clearhead.data.numbers import LANGUAGES
from clearhead.errors import MissingInputError, UsageError
from clearhead.serve.backends import TranslateOptions
from clearhead.serve.catalogue import Catalogue
from clearhead.serve.opening import languages_of, open_models

pytestmark = pytest.mark.usefixtures("unchecked")


class Onlooker:
    """A watch that loses interest in some rows after some steps."""

    def __init__(self, leaving: dict[int, int] | None = None) -> None:
        self.leaving = leaving or {}
        self.asked = 0

    def unwanted(self) -> list[int]:
        self.asked += 1
        return [row for row, step in self.leaving.items() if self.asked > step]

    def tell(self, place: int, news: Any) -> None:
        raise AssertionError("a translator has no news")


WORDS = [LANGUAGES["de"].spell(number) for number in range(1, 121)]


def test_the_reply_equals_the_librarys(start: Start, numbers: Catalogue, trained: Path) -> None:
    client = start(*numbers)
    library = clearhead.load(trained, "cpu")
    for first in range(0, 60, 20):
        texts = WORDS[first : first + 20]
        answer = client.post("/translate", json={"q": texts, "source": "de", "target": "en"}).json()
        assert answer["translatedText"] == library.translate(texts)
    found = client.post("/translate", json={"q": "zwölf", "source": "de", "target": "en", "alternatives": 3}).json()
    best = next(library.stream(["zwölf"], library.configured(beam_size=4, nbest=4)))
    assert [found["translatedText"], *found["alternatives"]] == [one.text for one in best]


def test_requests_alone_and_in_mixed_batches_give_the_same(start: Start, numbers: Catalogue) -> None:
    client = start(*numbers)

    def ask(text: str) -> str:
        return str(client.post("/translate", json={"q": text, "source": "de", "target": "en"}).json()["translatedText"])

    words = WORDS[:60]
    alone = [ask(text) for text in words]
    # The engine is kept busy, so that requests wait and are put together.
    with ThreadPoolExecutor(12) as pool:
        together = list(pool.map(ask, words))
    assert together == alone
    metrics = client.get("/metrics").text
    batches = float(metrics.split('clearhead_batch_rows_count{task="Translating"} ')[1].split()[0])
    assert batches < 2 * len(words), "nothing was put together"


@pytest.mark.parametrize("results", [1, 3])
def test_a_row_that_is_unwanted_ends_and_changes_nothing_for_the_rest(numbers: Catalogue, results: int) -> None:
    translator = numbers.models[0].translator
    assert translator is not None
    texts, options = WORDS[:6], TranslateOptions(results)
    whole = translator.translate_batch(texts, options, Onlooker())
    for step in (0, 2):
        found = translator.translate_batch(texts, options, Onlooker({1: step, 4: step}))
        for row in (0, 2, 3, 5):
            assert [one.text for one in found[row]] == [one.text for one in whole[row]]
            # Other company changes the last bits of a sum.
            assert [one.score for one in found[row]] == pytest.approx([one.score for one in whole[row]], abs=1e-5)
        assert all(len(found[row][0].text) <= step for row in (1, 4))
    patient = Onlooker()
    translator.translate_batch(texts, options, patient)
    hasty = Onlooker(dict.fromkeys(range(6), 2))
    translator.translate_batch(texts, options, hasty)
    assert hasty.asked <= 4 < patient.asked


def test_attention_is_what_inspect_finds(start: Start, numbers: Catalogue, trained: Path) -> None:
    client = start(*numbers)
    library = clearhead.load(trained, "cpu")
    plain = client.post("/attention", json={"text": "dreizehn"}).json()
    assert_alike(plain["view"], library.inspect("dreizehn").view)
    assert plain["sentences"] == ["dreizehn"]
    off = ["decoder.0.cross", "encoder.0.self.1"]
    without = client.post("/attention", json={"text": "dreizehn", "ablate": off}).json()
    expected = library.inspect("dreizehn", ablate=off)
    assert without["text"] == expected.translation
    assert_alike(without["view"], expected.view)
    assert without["loss"] == pytest.approx(expected.loss) and without["text"] != plain["text"]
    led = client.post("/attention", json={"text": "dreizehn", "target": "thirteen"}).json()
    assert led["text"] == "thirteen"
    # A head that was off for somebody is on again for the next.
    assert_alike(client.post("/attention", json={"text": "dreizehn"}).json(), plain)


def assert_alike(found: Any, expected: Any) -> None:
    """Two trees of names and values are the same but for the last digits of numbers."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert_alike(found[name], value)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other)
    else:
        assert found == (pytest.approx(expected, abs=2e-5) if isinstance(expected, float) else expected)


def test_attention_of_one_sentence_among_several(start: Start, numbers: Catalogue) -> None:
    client = start(*numbers)
    found = client.post("/attention", json={"text": "eins! Zwei.", "sentence": 1}).json()
    assert found["sentences"] == ["eins!", "Zwei."] and found["view"]["texts"]["source"] == "Zwei."


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"text": "eins", "ablate": ["decoder.7.cross"]}, 400, "no head or layer 'decoder.7.cross'"),
        ({"text": "eins", "sentence": 3}, 400, "there are 1 sentences"),
        ({"text": "  "}, 400, "the text is empty"),
        ({"text": ""}, 400, "text"),
        ({"text": "x" * 5001}, 400, "5,001 characters"),
        ({"text": "eins", "target": "x" * 100}, 400, "99"),
        ({"text": "eins", "model": "rnu"}, 404, "did you mean 'run'"),
        ({"text": "eins", "ablat": []}, 400, "did you mean 'ablate'"),
        ({"text": ["eins"]}, 400, "valid string"),
    ],
)
def test_what_cannot_be_looked_at_is_refused(
    start: Start, numbers: Catalogue, body: dict[str, Any], status: int, words: str
) -> None:
    response = start(*numbers).post("/attention", json=body)
    assert response.status_code == status and words.replace("99", "100") in response.json()["error"]


def test_people_look_while_others_translate(start: Start, numbers: Catalogue) -> None:
    client = start(*numbers)
    expected = client.post("/translate", json={"q": WORDS[:40], "source": "de", "target": "en"}).json()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            client.post("/attention", json={"text": "dreizehn", "ablate": ["decoder.0", "encoder.0"]})

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(5):
            assert client.post("/translate", json={"q": WORDS[:40], "source": "de", "target": "en"}).json() == expected
    finally:
        stop.set()
        looking.join()


def test_languages_come_from_the_training_config(trained: Path, tmp_path: Path) -> None:
    (model,) = open_models([trained], engine="torch", device="cpu")
    assert (model.name, model.kind, model.sources, model.target) == ("run", "translator", ("de",), "en")
    assert model.parameters == 23_424 and model.created > 1_700_000_000
    for text, expected in {
        '[data]\nkind = "files"\nsource = "a/train.de.gz"\ntarget = "a/train.zh"\n': (("de",), "zh"),
        '[data]\nkind = "files"\nsource = "a.txt"\ntarget = "b.txt"\n': ((), None),
        '[data]\ntarget_language = "en"\n[[data.parts]]\nlanguage = "de"\n[[data.parts]]\nlanguage = "zh"\n': (
            ("de", "zh"),
            "en",
        ),
        "": ((), None),
    }.items():
        (tmp_path / "training_config.toml").write_text(text)
        assert languages_of(tmp_path) == expected


def test_models_that_cannot_be_served_are_refused(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two models are called 'run'"):
        open_models([trained, trained], device="cpu")
    with pytest.raises(MissingInputError, match="no model at"):
        open_models([tmp_path / "nothing"])
    with pytest.raises(Exception, match="unknown engine 'tortch': did you mean 'torch'"):
        open_models([trained], engine="tortch")
    for wrong in ("de", "de:", ":en", ""):
        with pytest.raises(UsageError, match="--languages is like"):
            open_models([trained], languages=wrong)
