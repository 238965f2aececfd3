"""Models on other engines behind the server: what an engine finds is what clients get, one batch on each core."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.serve.conftest import Start

from clearhead.engines import directory
from clearhead.engines.hypotheses import Unwanted, nobody
from clearhead.engines.texts import ExportedTranslator
from clearhead.errors import UnavailableError
from clearhead.generate.hypothesis import Hypothesis
from clearhead.generate.settings import GenerationConfig
from clearhead.serve.backends import Lane, TranslateOptions
from clearhead.serve.catalogue import Served
from clearhead.serve.exported import EngineTranslator
from clearhead.text.kinds import TokenizerConfig
from clearhead.text.tokenizer import Tokenizer, TokenizerPair


class Engine:
    """Turns ids around; notes how many searches were under way at once."""

    name = "made-up"

    def __init__(self) -> None:
        self.now, self.most = 0, 0
        self.lock = threading.Lock()
        self.met = threading.Barrier(2, timeout=60)

    def check(self, config: GenerationConfig) -> None:
        if config.strategy == "sample":
            raise UnavailableError("this engine cannot draw")

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: GenerationConfig,
        row_keys: Sequence[int],
        unwanted: Unwanted = nobody,
        *,
        scored: bool = True,
    ) -> list[list[Hypothesis]]:
        self.unwanted = unwanted()
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        if config.nbest == 2:
            self.met.wait()
        with self.lock:
            self.now -= 1
        return [
            [
                Hypothesis((*ids[::-1], *ids[:rank]), -float(rank), -float(rank), (), True)
                for rank in range(config.nbest)
            ]
            for ids in sources
        ]

    def logits(self, source: Sequence[int], target: Sequence[int]) -> Any:
        raise AssertionError("nobody compares")


def exported(**settings: Any) -> ExportedTranslator:
    letters = Tokenizer.train(TokenizerConfig(kind="char"), ["abcdefghijklmnopqrstuvwxyz "])
    notes = directory.ExportNotes(engine="made-up", kind="translator", max_len=20, model={}, made_by="a test")
    generation = GenerationConfig(**{"strategy": "greedy", **settings})
    known = directory.Exported(path=Path("nowhere"), notes=notes, generation=generation)
    return ExportedTranslator(Engine(), TokenizerPair(letters, letters), known)


def served(translator: ExportedTranslator) -> Served:
    return Served("x", "translator", "made-up", translator=EngineTranslator(translator, Lane("made-up", 2)))


class Patient:
    """A watch that is told of one row before the search, and of another in the middle of it."""

    asked = 0

    def unwanted(self) -> list[int]:
        self.asked += 1
        return [1] if self.asked == 1 else [1, 2]

    def tell(self, place: int, news: Any) -> None:
        raise AssertionError("a translator has no news")


def test_what_the_engine_finds_is_what_clients_get(start: Start) -> None:
    client = start(served(exported()))
    body = {"q": ["abc def", "x" * 60], "source": "de", "target": "en", "alternatives": 2}
    answer = client.post("/translate", json=body).json()
    assert answer["translatedText"][0] == "fed cba" and answer["alternatives"][0] == ["fed cbaa", "fed cbaab"]
    assert answer["translatedText"][1].replace(" ", "") == "x" * 60


def test_rows_that_are_unwanted_are_not_begun_and_the_engine_hears_of_others() -> None:
    model = exported(stop=["z"])
    translator = EngineTranslator(model, Lane("made-up"))
    found = translator.translate_batch(["ab", "cd", "xyzw"], TranslateOptions(), Patient())
    # A text to stop at ends a translation here too.
    assert [best[0].text for best in found] == ["ba", "", "w"]
    # The third text is the second of those that were begun.
    assert model.engine.unwanted == [1]  # type: ignore[attr-defined]


def test_settings_that_the_engine_cannot_follow_are_refused_before_anybody_asks() -> None:
    with pytest.raises(UnavailableError, match="cannot draw"):
        EngineTranslator(exported(strategy="sample"), Lane("made-up"))


def test_what_a_batch_would_change_is_computed_alone() -> None:
    translator = exported()
    translator.engine.name = "onnx"
    lane = Lane("onnx")
    assert [EngineTranslator(translator, lane, how).most_rows for how in ("int8", None)] == [1, 32]
    translator.engine.name = "ctranslate2"
    assert EngineTranslator(translator, lane, "int8").most_rows == 32


def test_beams_that_cannot_be_stopped_are_short() -> None:
    translator = exported(strategy="beam")
    for name, rows in (("ctranslate2", 16), ("onnx", 32)):
        translator.engine.name = name
        assert EngineTranslator(translator, Lane(name)).most_rows == rows


def test_every_core_has_a_batch_of_its_own(start: Start) -> None:
    translator = exported()
    client = start(served(translator))

    def ask(text: str) -> int:
        # With one alternative, the engine answers only when two searches have met.
        body = {"q": [text] * 32, "source": "de", "target": "en", "alternatives": 1}
        return int(client.post("/translate", json=body).status_code)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(ask, ["ab", "cd"])) == [200, 200]
    assert translator.engine.most == 2  # type: ignore[attr-defined]
