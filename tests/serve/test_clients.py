"""The clients that people have: every method of theirs for these routes, against a server that listens."""

from __future__ import annotations

import asyncio
import urllib.error
from collections.abc import Iterator
from typing import Any

import pytest
from tests.serve.doubles import backwards, counting
from tests.serve.here import Here

from clearhead.serve.keys import Keys

openai = pytest.importorskip("openai", reason="needs openai: pip install openai")
libretranslatepy = pytest.importorskip(
    "libretranslatepy", reason="needs libretranslatepy: pip install libretranslatepy"
)


KEY = "a-good-long-key"


def methods(kind: type) -> set[str]:
    """What one can call on an object of a class, raw and streamed responses aside: they are other forms of the same."""
    return {name for name in vars(kind) if not name.startswith(("_", "with_")) and callable(getattr(kind, name))}


def test_no_method_is_left_out() -> None:
    assert methods(libretranslatepy.LibreTranslateAPI) == {"translate", "detect", "languages"}
    assert methods(openai.resources.Models) == methods(openai.resources.AsyncModels) == {"list", "retrieve", "delete"}
    assert methods(openai.resources.Completions) == methods(openai.resources.AsyncCompletions) == {"create"}


@pytest.fixture(scope="module")
def locked() -> Iterator[str]:
    """Where a server listens that wants a key."""
    with Here(backwards(), counting(), policy={"keys": Keys([KEY])}) as server:
        yield server.address


@pytest.fixture
def libre(address: str) -> Any:
    return libretranslatepy.LibreTranslateAPI(address)


def test_libretranslatepy_translates_detects_and_lists(libre: Any) -> None:
    assert libre.translate("Hallo Welt", "de", "en") == "tleW ollaH"
    assert libre.detect("Wo ist denn hier bitte der nächste Bahnhof?")[0]["language"] == "de"
    assert [one["code"] for one in libre.languages()] == ["de", "en", "zh"]


def test_libretranslatepy_hears_of_mistakes(libre: Any) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        libre.translate("Hallo", "de", "fr")
    assert refused.value.code == 400 and b"fr is not supported" in refused.value.read()


def test_libretranslatepy_shows_its_key(locked: str) -> None:
    friend = libretranslatepy.LibreTranslateAPI(locked, KEY)
    assert friend.translate("Hallo", "de", "en", timeout=60) == "ollaH"
    assert friend.detect("Hallo", timeout=60) and len(friend.languages(timeout=60)) == 3
    for key, code in ((None, 400), ("another", 403)):
        stranger = libretranslatepy.LibreTranslateAPI(locked, key)
        for ask in (lambda api: api.translate("Hallo"), lambda api: api.detect("Hallo"), lambda api: api.languages()):
            with pytest.raises(urllib.error.HTTPError) as refused:
                ask(stranger)
            assert refused.value.code == code
            refused.value.close()


@pytest.fixture
def client(address: str) -> Any:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="not needed", max_retries=0) as made:
        yield made


ASK = {"model": "counting", "prompt": "abcd", "max_tokens": 6, "temperature": 0}


def test_openai_lists_and_finds_models(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["backwards", "counting", "shouting"]
    assert client.models.retrieve("counting").owned_by == "clearhead"
    raw = client.models.with_raw_response.list()
    assert raw.status_code == 200 and len(raw.parse().data) == 3
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.models.retrieve("nobody")
    with pytest.raises(openai.APIStatusError) as refused:
        client.models.delete("counting")
    assert refused.value.status_code == 405


def test_openai_completes(client: Any) -> None:
    answer = client.completions.create(**ASK, n=2, logprobs=2, stop=["x"], seed=3, user="me", echo=False)
    assert [choice.text for choice in answer.choices] == ["abcdab", "abcdab"]
    assert answer.choices[0].finish_reason == "length" and answer.usage.total_tokens == 16
    assert answer.choices[0].logprobs.tokens == [*"abcdab"]
    best = client.completions.create(**{**ASK, "temperature": 1}, best_of=4, n=1)
    assert len(best.choices) == 1
    raw = client.completions.with_raw_response.create(**ASK)
    assert raw.parse().choices[0].text == "abcdab"
    with client.completions.with_streaming_response.create(**ASK) as response:
        assert b"abcdab" in response.read()


def test_openai_streams(client: Any) -> None:
    with client.completions.create(**ASK, stream=True, stream_options={"include_usage": True}) as stream:
        chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == "abcdab"
    assert chunks[-1].usage.completion_tokens == 6 and chunks[-2].choices[0].finish_reason == "length"


def test_openai_completes_and_streams_asynchronously(address: str) -> None:
    async def check() -> None:
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none") as client:
            assert [model.id async for model in client.models.list()] == ["backwards", "counting", "shouting"]
            assert (await client.models.retrieve("counting")).id == "counting"
            with pytest.raises(openai.APIStatusError, match="Not allowed to DELETE"):
                await client.models.delete("counting")
            raw = await client.models.with_raw_response.retrieve("backwards")
            assert raw.parse().id == "backwards"
            async with client.completions.with_streaming_response.create(**ASK) as response:
                assert b"abcdab" in await response.read()
            many = await asyncio.gather(*(client.completions.create(**ASK) for _ in range(8)))
            assert {answer.choices[0].text for answer in many} == {"abcdab"}
            stream = await client.completions.create(**ASK, stream=True)
            assert "".join([chunk.choices[0].text async for chunk in stream]) == "abcdab"

    asyncio.run(check())


def test_openai_hears_of_mistakes(client: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="its route is /translate") as refused:
        client.completions.create(model="backwards", prompt="a")
    assert refused.value.code == "model_not_supported" and refused.value.param == "model"
    with pytest.raises(openai.BadRequestError, match="<= 8"):
        client.completions.create(**ASK, n=9)
    with pytest.raises(openai.NotFoundError, match="Unknown request URL"):
        client.chat.completions.create(model="counting", messages=[{"role": "user", "content": "hi"}])


def test_openai_shows_its_key(locked: str) -> None:
    with openai.OpenAI(base_url=f"{locked}/v1", api_key=KEY) as friend:
        assert friend.completions.create(**ASK).choices[0].text == "abcdab"
        assert [model.id for model in friend.models.list()] == ["backwards", "counting"]
    with openai.OpenAI(base_url=f"{locked}/v1", api_key="another", max_retries=0) as stranger:
        for ask in (lambda: stranger.completions.create(**ASK), stranger.models.list):
            with pytest.raises(openai.AuthenticationError, match="Incorrect API key") as refused:
                ask()
            assert refused.value.code == "invalid_api_key"
