"""Exported translators behind the server: what their engine finds is what clients get, on every core."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests.serve.conftest import Start

from clearhead.config import build
from clearhead.generate.settings import GenerationConfig
from clearhead.serve.backends import TranslateOptions
from clearhead.serve.catalogue import Served
from clearhead.serve.exported import ExportedTranslator
from clearhead.text.kinds import TokenizerConfig
from clearhead.text.tokenizer import Tokenizer, TokenizerPair


@dataclass(frozen=True)
class Said:
    text: str
    score: float


class Engine:
    """Turns ids around; notes how many searches were under way at once."""

    def __init__(self) -> None:
        self.now, self.most, self.checked = 0, 0, 0
        self.lock = threading.Lock()
        self.met = threading.Barrier(2, timeout=5)

    def check(self, config: GenerationConfig) -> None:
        self.checked += 1

    def search(self, sources: Sequence[Sequence[int]], config: GenerationConfig, row_keys: Sequence[int]) -> list[Any]:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        if config.nbest == 2:
            self.met.wait()
        with self.lock:
            self.now -= 1
        return [[(list(ids)[::-1], rank) for rank in range(config.nbest)] for ids in sources]


class Exported:
    """An exported translator, as it is opened."""

    def __init__(self) -> None:
        letters = Tokenizer.train(TokenizerConfig(kind="char"), ["abcdefghijklmnopqrstuvwxyz "])
        self.tokenizers = TokenizerPair(letters, letters)
        self.generation = GenerationConfig(strategy="greedy")
        self.max_len = 20
        self.engine = Engine()

    def configured(self, **options: Any) -> GenerationConfig:
        if "beam_size" in options:
            options["strategy"] = "beam"
        return build(GenerationConfig, {**self.generation.model_dump(), **options}, "generation")

    def as_text(self, one: tuple[list[int], int]) -> Said:
        return Said(self.tokenizers.target.decode(one[0]) + "'" * one[1], -float(one[1]))


class Patient:
    def unwanted(self) -> list[int]:
        return [1]

    def tell(self, place: int, news: Any) -> None:
        raise AssertionError("a translator has no news")


def test_what_the_engine_finds_is_what_clients_get(start: Start) -> None:
    exported = Exported()
    client = start(Served("x", "translator", "made-up", translator=ExportedTranslator(exported, "made-up", 2)))
    body = {"q": ["abc def", "x" * 60], "source": "de", "target": "en", "alternatives": 2}
    answer = client.post("/translate", json=body).json()
    assert answer["translatedText"][0] == "fed cba" and answer["alternatives"][0] == ["fed cba'", "fed cba''"]
    assert answer["translatedText"][1].replace(" ", "") == "x" * 60 and exported.engine.checked > 0


def test_rows_that_are_unwanted_are_not_begun() -> None:
    exported = Exported()
    found = ExportedTranslator(exported, "made-up", 1).translate_batch(["ab", "cd", "ef"], TranslateOptions(), Patient())
    assert [best[0].text for best in found] == ["ba", "", "fe"]


def test_every_core_has_a_batch_of_its_own(start: Start) -> None:
    exported = Exported()
    client = start(Served("x", "translator", "made-up", translator=ExportedTranslator(exported, "made-up", 2)))

    def ask(text: str) -> int:
        # With one alternative, the engine answers only when two searches have met.
        body = {"q": [text] * 32, "source": "de", "target": "en", "alternatives": 1}
        return int(client.post("/translate", json=body).status_code)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(ask, ["ab", "cd"])) == [200, 200]
    assert exported.engine.most == 2
