"""OpenAI's API: completions whole and streamed, its fields, its error objects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError
from starlette.testclient import TestClient
from tests.serve.conftest import Start
from tests.serve.doubles import Counting, counting

from clearhead.serve import schema

ASK = {"model": "counting", "prompt": "abcd", "max_tokens": 6, "temperature": 0}


def ask(client: TestClient, **changes: Any) -> Any:
    return client.post("/v1/completions", json={**ASK, **changes})


def texts(response: Any) -> list[str]:
    return [choice["text"] for choice in response.json()["choices"]]


def events(client: TestClient, **changes: Any) -> list[dict[str, Any]]:
    """What a stream says, its end left out."""
    with client.stream("POST", "/v1/completions", json={**ASK, **changes, "stream": True}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines) and lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_a_text_is_continued(client: TestClient) -> None:
    answer = ask(client).json()
    assert answer["object"] == "text_completion" and answer["model"] == "counting" and answer["id"].startswith("cmpl-")
    assert answer["choices"] == [{"index": 0, "text": "abcdab", "logprobs": None, "finish_reason": "length"}]
    assert answer["usage"] == {"prompt_tokens": 4, "completion_tokens": 6, "total_tokens": 10}


def test_prompts_may_be_texts_or_tokens_one_or_several_or_none(client: TestClient) -> None:
    assert texts(ask(client, prompt=["ab", "xyz"])) == ["ababab", "xyzxyz"]
    assert texts(ask(client, prompt=[97, 98])) == ["ababab"]
    assert texts(ask(client, prompt=[[97], [98, 99]])) == ["aaaaaa", "bcbcbc"]
    assert texts(client.post("/v1/completions", json={"model": "counting", "max_tokens": 4, "temperature": 0})) == [
        "abca"
    ]
    assert texts(ask(client, prompt="", max_tokens=3)) == ["abc"]


def test_several_continuations_are_numbered_through(client: TestClient) -> None:
    answer = ask(client, prompt=["ab", "cd"], n=2).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert [choice["text"][:2] for choice in answer["choices"]] == ["ab", "ab", "cd", "cd"]


def test_the_same_seed_draws_the_same_alone_and_beside_others(client: TestClient) -> None:
    drawn = texts(ask(client, temperature=1, seed=7, n=8))
    assert texts(ask(client, temperature=1, seed=7, n=8)) == drawn and len(set(drawn)) > 1
    assert texts(ask(client, temperature=1, seed=7, n=3)) == drawn[:3]
    assert texts(ask(client, temperature=1, seed=8, n=8)) != drawn


def test_the_best_of_several_is_the_likeliest_per_token(client: TestClient) -> None:
    answer = ask(client, temperature=1, seed=7, best_of=8, n=2, logprobs=0).json()
    likely = [choice["logprobs"]["token_logprobs"][0] for choice in answer["choices"]]
    everything = ask(client, temperature=1, seed=7, n=8, logprobs=0).json()["choices"]
    assert likely == sorted((choice["logprobs"]["token_logprobs"][0] for choice in everything), reverse=True)[:2]
    assert answer["usage"]["completion_tokens"] == 48


def test_a_continuation_ends_before_a_stop(client: TestClient) -> None:
    answer = ask(client, stop="d").json()["choices"][0]
    assert (answer["text"], answer["finish_reason"]) == ("abc", "stop")
    assert texts(ask(client, stop=["x", "c"])) == ["ab"]


def test_the_prompt_is_given_back_if_wanted(client: TestClient) -> None:
    assert texts(ask(client, echo=True, prompt=["ab", "cd"], n=2, max_tokens=2)) == ["abab", "abab", "cdcd", "cdcd"]
    assert texts(ask(client, echo=True, max_tokens=0)) == ["abcd"]
    assert events(client, echo=True, max_tokens=0)[0]["choices"][0]["text"] == "abcd"


def test_log_probabilities_have_their_places_in_the_text(client: TestClient) -> None:
    told = ask(client, logprobs=2, max_tokens=3).json()["choices"][0]["logprobs"]
    assert told == {
        "tokens": ["a", "b", "c"],
        "token_logprobs": [-0.5, -0.5, -0.5],
        "top_logprobs": [{"a": -1.0, "b": -2.0}] * 3,
        "text_offset": [0, 1, 2],
    }


def test_a_stream_says_what_the_whole_says(client: TestClient) -> None:
    whole = ask(client, n=2, prompt=["abc", "xy"], logprobs=1).json()["choices"]
    chunks = events(client, n=2, prompt=["abc", "xy"], logprobs=1)
    assert len({chunk["id"] for chunk in chunks}) == 1
    for number, choice in enumerate(whole):
        parts = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == number]
        assert "".join(part["text"] for part in parts) == choice["text"]
        told = [part["logprobs"] for part in parts if part["logprobs"]]
        for name in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
            assert [item for one in told for item in one[name]] == choice["logprobs"][name]
        assert [part["finish_reason"] for part in parts] == [None] * (len(parts) - 1) + ["length"]


def test_a_stream_tells_its_usage_last_if_wanted(client: TestClient) -> None:
    *chunks, last = events(client, stream_options={"include_usage": True})
    assert last["choices"] == [] and last["usage"] == {"prompt_tokens": 4, "completion_tokens": 6, "total_tokens": 10}
    assert all(chunk["usage"] is None for chunk in chunks)
    assert "usage" not in events(client)[0]


def test_a_stream_that_breaks_says_so_at_its_end(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    writer = Counting()

    def broken(prompts: Any, options: Any, watch: Any) -> Any:
        raise RuntimeError("oh")

    writer.write_batch = broken  # type: ignore[method-assign]
    client = start(counting(writer=writer))
    with client.stream("POST", "/v1/completions", json={**ASK, "stream": True}) as response:
        last = [line for line in response.iter_lines() if line][-1]
    assert json.loads(last.removeprefix("data: "))["error"]["type"] == "server_error" and "oh" not in last
    assert ask(client).status_code == 500 and "oh" not in ask(client).text


def test_models_are_listed_and_found(client: TestClient) -> None:
    listed = client.get("/v1/models").json()
    assert listed["object"] == "list" and [one["id"] for one in listed["data"]] == ["backwards", "counting", "shouting"]
    one = client.get("/v1/models/counting").json()
    assert one == {"id": "counting", "object": "model", "created": 1_700_000_000, "owned_by": "clearhead"}


@pytest.mark.parametrize(
    ("changes", "status", "param", "code", "words"),
    [
        ({"model": "nobody"}, 404, None, "model_not_found", "The model `nobody` does not exist"),
        ({"model": "backwards"}, 400, "model", "model_not_supported", "its route is /translate"),
        ({"model": "shouting"}, 400, "model", "model_not_supported", "its route is /classify"),
        ({"n": 9}, 400, "n", "integer_above_max_value", "<= 8"),
        ({"n": 10**9}, 400, "n", "integer_above_max_value", "<= 8"),
        ({"n": 0}, 400, "n", "invalid_value", "greater than or equal to 1"),
        ({"n": "2"}, 400, "n", "invalid_type", "integer"),
        ({"n": True}, 400, "n", "invalid_type", "integer"),
        ({"best_of": 9}, 400, "best_of", "integer_above_max_value", "<= 8"),
        ({"best_of": 1, "n": 2}, 400, "best_of", None, "best_of < n"),
        ({"best_of": 2, "stream": True}, 400, "best_of", None, "stream"),
        ({"max_tokens": 1025}, 400, "max_tokens", "integer_above_max_value", "<= 1024"),
        ({"max_tokens": 500}, 400, None, "context_length_exceeded", "maximum context length is 400"),
        ({"temperature": 3}, 400, "temperature", "invalid_value", "less than or equal to 2"),
        ({"top_p": -1}, 400, "top_p", "invalid_value", "greater than or equal to 0"),
        ({"logprobs": 6}, 400, "logprobs", "invalid_value", "5"),
        ({"logprobs": 1, "echo": True}, 400, "echo", "unsupported_value", "echo"),
        ({"stop": list("abcde")}, 400, "stop", "array_above_max_length", "4"),
        ({"stop": ""}, 400, "stop", "invalid_value", "1 to"),
        ({"suffix": "x"}, 400, "suffix", "unsupported_parameter", "suffix"),
        ({"logit_bias": {"1": 2}}, 400, "logit_bias", "unsupported_parameter", "logit_bias"),
        ({"frequency_penalty": 1}, 400, "frequency_penalty", "unsupported_parameter", "frequency_penalty"),
        ({"stream_options": {"include_usage": True}}, 400, "stream_options", None, "only allowed"),
        ({"prompt": []}, 400, "prompt", "empty_array", "empty"),
        ({"prompt": [[]]}, 400, "prompt", "empty_array", "empty"),
        ({"prompt": ["a"] * 65}, 400, "prompt", "array_above_max_length", "64"),
        ({"prompt": "a" * 5001}, 400, "prompt", "string_above_max_length", "5000"),
        ({"prompt": [1, 2]}, 400, "prompt", None, "no tokens"),
        ({"prompt": {"a": 1}}, 400, "prompt", "invalid_type", "prompt"),
        ({"tempature": 1}, 400, "tempature", None, "did you mean 'temperature'"),
    ],
)
def test_every_mistake_is_an_error_object_that_names_the_field(
    client: TestClient, changes: dict[str, Any], status: int, param: str | None, code: str | None, words: str
) -> None:
    response = ask(client, **changes)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (status, param, code)
    assert error["type"] == "invalid_request_error" and words in error["message"]


def test_what_is_missing_or_unreadable_is_an_error_object_too(client: TestClient) -> None:
    missing = client.post("/v1/completions", json={"prompt": "a"})
    assert missing.status_code == 400 and missing.json()["error"]["message"] == "you must provide a model parameter"
    kind = client.post("/v1/completions", data=ASK)
    assert kind.status_code == 415 and kind.json()["error"]["type"] == "invalid_request_error"
    for path in ("/v1/chat/completions", "/v1", "/v1/completions/"):
        unknown = client.post(path, json=ASK)
        assert unknown.status_code == 404 and "Unknown request URL" in unknown.json()["error"]["message"]
    wrong = client.delete("/v1/models/counting")
    assert wrong.status_code == 405 and wrong.json()["error"]["code"] == "method_not_supported"


MANY = 150_000
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"prompt": [[""] * 9_999] * 49}, "Invalid 'prompt': there are too many items, there may be at most 320000"),
        ({"prompt": [[1]] * MANY}, "Invalid 'prompt': there are too many items, there may be at most 10000"),
        ({"prompt": [[""] * 9_999] * 30}, "Invalid 'prompt': Input should be a valid string"),
        ({"prompt": [[1, ""]] * 9_999}, "Invalid 'prompt': Input should be a valid string"),
        ({"stop": [1] * 9_999}, "Invalid 'stop': Input should be a valid string"),
        ({"logit_bias": dict.fromkeys(map(str, range(MANY)), "")}, "Invalid 'logit_bias': there are too many items"),
        ({"stream_options": dict.fromkeys(map(str, range(MANY)))}, "Invalid 'stream_options': there are too many"),
        (dict.fromkeys(map(str, range(MANY))), "there are too many fields, there may be at most 100"),
    ],
    ids=["ids", "prompts", "wrong ids", "wrong prompts", "stops", "biases", "options", "fields"],
)  # fmt: skip
def test_many_wrong_things_are_few_complaints(client: TestClient, wrong: dict[str, Any], said: str) -> None:
    body = {"model": "counting", **wrong}
    with pytest.raises(ValidationError) as complaints:
        schema.CompletionBody.model_validate(body)
    assert complaints.value.error_count() < 10
    response = client.post("/v1/completions", content=json.dumps(body, separators=(",", ":")), headers=JSON)
    assert (response.status_code, response.json()["error"]["message"][: len(said)]) == (400, said)


def test_as_many_tokens_as_the_bounds_allow_are_taken(start: Start) -> None:
    client = start(counting(writer=Counting(longest=None)), seconds=600)
    whole = client.post("/v1/completions", json={"model": "counting", "prompt": [[97] * 5_000] * 64, "max_tokens": 0})
    assert whole.status_code == 200 and len(whole.json()["choices"]) == 64
