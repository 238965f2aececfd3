"""Hundreds of bodies that nobody should send: each is answered, none with an error of ours, and nothing breaks."""

from __future__ import annotations

import gzip
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from starlette.testclient import TestClient
from tests.serve import made_up_models
from tests.serve.processes import serving

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
DEEP = 100_000


class Case(NamedTuple):
    """One thing to send."""

    path: str
    body: bytes
    media: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


def values() -> Iterator[tuple[str, bytes]]:
    """Values that are wrong for nearly every field, by name, as JSON."""
    plain = {
        "null": None, "true": True, "zero": 0, "minus": -1, "half": 0.5, "billion": 10**9, "huge": 10**300, "list": [],
        "nested": [[[]]], "object": {}, "mixed": ["a", 1, None], "nul": "\x00", "bidi": "\u202e\u2066",
        "astral": "𝕳" * 10,
    }  # fmt: skip
    yield from ((name, json.dumps(value).encode()) for name, value in plain.items())
    yield from {
        "nan": b"NaN", "infinity": b"-Infinity", "overflow": b"1e999", "lone": b'"\\ud800"',
        "pair": b'"\\udc00\\ud800"', "deep": b"[" * DEEP + b"]" * DEEP, "objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
        "digits": b"1" * 10_000, "broken": b'"\xff\xfe"', "half": b'"abc', "million": b"[" + b"1," * 900_000 + b"1]",
    }.items()  # fmt: skip


def bodies(path: str, **good: Any) -> Iterator[Case]:
    """Good bodies with one field made wrong."""
    for field in good:
        rest = json.dumps({name: value for name, value in good.items() if name != field})[1:-1].encode()
        for _, value in values():
            yield Case(path, b"{" + rest + (b"," if rest else b"") + json.dumps(field).encode() + b":" + value + b"}")


def others() -> Iterator[Case]:
    """Bodies that are wrong as a whole."""
    good = b'{"q": "a", "source": "de", "target": "en"}'
    for path in ("/translate", "/detect", "/v1/completions", "/classify", "/attention"):
        for body in (
            b"",
            b"null",
            b"[]",
            b'"text"',
            b"{",
            b"\x00",
            b"\xff" * 1000,
            b"\xef\xbb\xbf{}",
            b"{}" * 2,
            b"{'q': 1}",
        ):
            yield Case(path, body)
        yield Case(path, b'{"q": "a", "q": "b", "q": ["c"], "text": "a", "text": 1, "model": "x", "model": 1}')
        yield Case(path, gzip.compress(b"0" * 10_000_000), JSON, (("Content-Encoding", "gzip"),))
        yield Case(path, b"x" * 2_000_001)
        yield Case(path, b'{"q": [' + b"1," * 999_999 + b'1], "source": "de", "target": "en"}')
        yield Case(path, good, "text/plain")
        yield Case(path, good, "")
        yield Case(path, good, "application/json; charset=utf-7")
        yield Case(path, good, "\xff/json")
        yield Case(path, good, "multipart/form-data")
        yield Case(path, b"--x\r\nContent-Disposition: form-data; name=q\r\n\r\n", "multipart/form-data; boundary=x")
        yield Case(path, b"--x\r\n" * 100_000, "multipart/form-data; boundary=x")
        yield Case(
            path,
            b"--x\r\nContent-Disposition: form-data; name=q; filename=a\r\n\r\nb\r\n--x--",
            "multipart/form-data; boundary=x",
        )
        yield Case(path, b"&".join(b"f%d=1" % number for number in range(2_000)), FORM)
        yield Case(path, b"q=%ff%fe&source=%00&target=%", FORM)
        yield Case(path, b"q=" + b"a" * 6_000 + b"&source=de&target=en", FORM)
        yield Case(path, b"=" * 100_000, FORM)
    yield Case("/translate", b"q=a&source=de&target=en&alternatives=" + "٣".encode(), FORM)
    yield Case("/translate", b"q=a&source=de&target=en&alternatives=1e9", FORM)
    yield Case("/translate", b"q=a&source=de&target=en&alternatives=" + b"9" * 5_000, FORM)
    yield Case("/translate", b'{"q": "' + b"<" * 4_999 + b'", "source": "de", "target": "en", "format": "html"}')
    yield Case("/translate", b'{"q": "' + b"<!--" * 1_000 + b'", "source": "de", "target": "en", "format": "html"}')
    yield Case("/translate", b'{"q": "' + b". " * 2_400 + b'", "source": "de", "target": "en"}')
    yield Case("/translate", b'{"q": "' + b"a. B" * 1_200 + b'", "source": "auto", "target": "en"}')


CASES = [
    *bodies("/translate", q="a", source="de", target="en", format="text", alternatives=1, model="backwards"),
    *bodies("/detect", q="a"),
    *bodies(
        "/v1/completions",
        model="counting",
        prompt="a",
        n=1,
        stop="x",
        max_tokens=2,
        temperature=1,
        logprobs=1,
        stream=False,
    ),
    *bodies("/classify", text="a", model="shouting"),
    *bodies("/attention", text="a", target="b", sentence=0, ablate=["encoder.0"]),
    *others(),
]


def test_there_are_enough_of_them() -> None:
    assert len({*CASES}) >= 150


@pytest.mark.parametrize("path", ["/translate", "/detect", "/v1/completions", "/classify", "/attention"])
def test_whatever_is_sent_is_answered_and_is_no_error_of_ours(client: TestClient, path: str) -> None:
    sent = [case for case in CASES if case.path == path]
    for case in sent:
        headers = {name: value for name, value in [("Content-Type", case.media), *case.headers] if value}
        encoded = {name: value.encode("latin-1") for name, value in headers.items()}
        response = client.post(case.path, content=case.body, headers=encoded)
        assert response.status_code < 500, (case.body[:100], response.text)
        assert response.status_code == 200 or response.json()["error"], case.body[:100]
        assert len(response.content) < 100_000 or response.status_code == 200
    assert client.post("/translate", json={"q": "ab", "source": "de", "target": "en"}).json() == {
        "translatedText": "ba"
    }


def test_a_real_server_with_real_models_answers_all_of_it_and_stays_the_same_process(tmp_path: Path) -> None:
    makers = {"backwards": made_up_models.translator, "counting": made_up_models.gpt,
              "shouting": made_up_models.classifier}  # fmt: skip
    with serving(*(make(tmp_path / name) for name, make in makers.items()), flags=["--rate", "0"]) as server:
        for case in CASES:
            status, answer = posted(server.address, case)
            assert status < 500, (case.path, case.body[:100], answer)
        ready = Case("/translate", b'{"q": "to be", "source": "de", "target": "en"}')
        assert posted(server.address, ready)[0] == 200 and server.process.poll() is None
        assert server.stop() == 0
    assert not any("failed" in line or "Traceback" in line for line in server.said)


def posted(address: str, case: Case) -> tuple[int, bytes]:
    """The status and the body of an answer, over a connection of its own."""
    headers = {name: value.encode("latin-1") for name, value in [("Content-Type", case.media), *case.headers] if value}
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
    try:
        connection.request("POST", case.path, case.body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    "path", ["/%00", "/%ff", "/" + "a" * 8_000, "/page/../../etc/passwd", "/page/%2e%2e%2findex.html", "/v1/models/%00"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "BREW"])
def test_paths_that_lead_nowhere_are_answered(client: TestClient, method: str, path: str) -> None:
    response = client.request(method, path)
    assert response.status_code in (404, 405) and response.json()["error"]
