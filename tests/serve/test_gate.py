"""What every request passes: names, keys, rates, sizes; and what every answer carries."""

from __future__ import annotations

import base64
import http.client
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.serve.conftest import Start
from tests.serve.doubles import Backwards, Glass, backwards, counting, shouting
from tests.serve.here import Here

from clearhead.errors import ConfigError, MissingInputError, UsageError
from clearhead.serve.bounds import Bounds
from clearhead.serve.catalogue import Served
from clearhead.serve.gate import Policy
from clearhead.serve.keys import Keys, read_keys
from clearhead.serve.rates import MOST_BUCKETS, Rates

KEY = "correct-horse-battery"
GOOD = {"q": "Hallo", "source": "de", "target": "en"}
ROUTES = [
    ("GET", "/"), ("GET", "/docs"), ("GET", "/openapi.json"), ("GET", "/page/view.js"), ("GET", "/metrics"),
    ("GET", "/models"), ("GET", "/v1/models"), ("GET", "/v1/models/counting"), ("POST", "/v1/completions"),
    ("POST", "/translate"), ("POST", "/detect"), ("GET", "/languages"), ("GET", "/frontend/settings"),
    ("POST", "/classify"), ("POST", "/attention"), ("POST", "/suggest"), ("POST", "/translate_file"),
    ("GET", "/no-such-thing"),
]  # fmt: skip


@pytest.fixture
def locked(start: Start) -> TestClient:
    """A client of a server that wants a key."""
    return start(policy={"keys": Keys([KEY, "another-good-key"])})


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_route_but_health_wants_a_key(locked: TestClient, method: str, path: str) -> None:
    none = locked.request(method, path, json={} if method == "POST" else None)
    wrong = locked.request(method, path, json={}, headers={"Authorization": "Bearer wrong-key-wrong"})
    right = locked.request(method, path, json={}, headers={"Authorization": f"Bearer {KEY}"})
    expected = (
        (400, 403)
        if path in ("/translate", "/detect", "/languages", "/frontend/settings", "/suggest", "/translate_file")
        else (401, 401)
    )
    assert (none.status_code, wrong.status_code) == expected
    assert right.status_code not in (401,) and right.text != none.text


def test_the_routes_above_are_all_there_are(client: TestClient) -> None:
    listed = {
        (method.upper(), path) for path, one in client.get("/openapi.json").json()["paths"].items() for method in one
    }
    tested = {(method, path.replace("counting", "{model}")) for method, path in ROUTES}
    assert listed - tested == {("GET", "/health"), ("GET", "/livez"), ("GET", "/readyz")}


@pytest.mark.parametrize("path", ["/health", "/livez", "/readyz"])
def test_health_needs_none(locked: TestClient, path: str) -> None:
    assert locked.get(path).status_code == 200


def test_a_key_may_come_as_each_client_sends_it(locked: TestClient) -> None:
    basic = base64.b64encode(f"anybody:{KEY}".encode()).decode()
    assert locked.post("/translate", json={**GOOD, "api_key": KEY}).json() == {"translatedText": "ollaH"}
    assert locked.post("/translate", data={**GOOD, "api_key": KEY}).json() == {"translatedText": "ollaH"}
    assert locked.post("/translate", params={**GOOD, "api_key": KEY}).json() == {"translatedText": "ollaH"}
    parts = {name: (None, value) for name, value in {**GOOD, "api_key": KEY}.items()}
    assert locked.post("/translate", files=parts).json() == {"translatedText": "ollaH"}
    assert locked.request("GET", "/languages", data={"api_key": "another-good-key"}).status_code == 200
    assert locked.get("/models", headers={"Authorization": f"Basic {basic}"}).status_code == 200
    assert locked.get("/models", headers={"X-API-Key": KEY}).status_code == 200


def test_a_form_that_cannot_be_read_holds_no_key(locked: TestClient) -> None:
    broken = locked.post("/translate", content=b"--x\r\n", headers={"Content-Type": "multipart/form-data; boundary=y"})
    assert (broken.status_code, broken.json()) == (400, {"error": "Invalid request: the form cannot be read"})


def test_refusals_for_want_of_a_key_are_each_apis_own(locked: TestClient) -> None:
    none = locked.post("/translate", json=GOOD)
    assert none.json() == {"error": "Please contact the server operator to get an API key"}
    wrong = locked.post("/translate", json={**GOOD, "api_key": "nope-nope-nope"})
    assert (wrong.status_code, wrong.json()) == (403, {"error": "Invalid API key"})
    openai = locked.get("/v1/models", headers={"Authorization": "Bearer nope"})
    assert (openai.status_code, openai.json()["error"]["code"]) == (401, "invalid_api_key")
    assert locked.get("/").headers["WWW-Authenticate"].startswith("Basic ")


@pytest.mark.parametrize("value", ["Basic", "Basic %%%", "Basic /////w==", "Bearer", "Bearer \xff", "", "Negotiate x"])
def test_nonsense_for_a_key_is_a_wrong_key(locked: TestClient, value: str) -> None:
    assert locked.get("/models", headers={"Authorization": value.encode("latin-1")}).status_code == 401


def test_keys_are_read_from_a_file_and_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# ours\nfirst-key-of-all  # for Anna\n\nsecond-key\n", encoding="utf-8")
    keys = read_keys(file, {"CLEARHEAD_KEYS": "third-key, fourth-key"})
    assert all(keys.allow(key) for key in ("first-key-of-all", "second-key", "third-key", "fourth-key"))
    assert not any(keys.allow(key) for key in ("", "#", "for", "first-key", "second-key ", "ours"))
    assert not read_keys(None, {})


def test_a_file_of_keys_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="no file of keys"):
        read_keys(tmp_path / "nothing", {})
    (tmp_path / "empty").write_text("# none\n")
    with pytest.raises(ConfigError, match="holds no key"):
        read_keys(tmp_path / "empty", {})
    with pytest.raises(ConfigError, match="8 to 200") as refused:
        read_keys(None, {"CLEARHEAD_KEYS": "short"})
    assert "short" not in str(refused.value)


def test_all_keys_are_compared_whichever_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    import hmac

    compared: list[tuple[int, int]] = []
    plain = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append((len(a), len(b))) or plain(a, b))
    keys = Keys([f"key-number-{number}" for number in range(5)])
    for given in ("key-number-0", "key-number-4", "x", "x" * 10_000):
        compared.clear()
        keys.allow(given)
        assert compared == [(32, 32)] * 5


def stop_the_clock(client: TestClient) -> None:
    """Let no time pass for whoever counts requests, however long they take on a busy machine."""
    client.app._rates._clock = lambda: 0.0  # type: ignore[union-attr]


def test_who_asks_too_often_is_told_to_slow_down(start: Start) -> None:
    client = start(rate=60)
    stop_the_clock(client)
    statuses = [client.post("/translate", json=GOOD).status_code for _ in range(9)]
    assert statuses == [200] * 6 + [429] * 3
    refused = client.post("/translate", json=GOOD)
    assert refused.json() == {"error": "Slowdown: 60 per 1 minute"} and 1 <= int(refused.headers["Retry-After"]) <= 60
    assert client.get("/v1/models").json()["error"]["code"] == "rate_limit_exceeded"
    assert client.get("/health").status_code == 200


def test_a_key_has_one_rate_whatever_addresses_it_comes_from(start: Start) -> None:
    here = start(rate=60, policy={"keys": Keys([KEY, "another-good-key"])})
    stop_the_clock(here)
    ways = [here, *(TestClient(here.app, client=(f"192.0.2.{number}", 1)) for number in (7, 8))]
    mine, other = ({"X-API-Key": key} for key in (KEY, "another-good-key"))
    statuses = [ways[number % 3].get("/models", headers=mine).status_code for number in range(9)]
    assert statuses == [200] * 6 + [429] * 3
    assert ways[0].get("/models", headers=other).status_code == 200
    assert int(ways[1].get("/models", headers=mine).headers["Retry-After"]) >= 1


def test_rates_fill_up_again_and_forget_those_who_are_gone() -> None:
    now = [0.0]
    rates = Rates(60, 2, lambda: now[0])
    assert [rates.wait("a") for _ in range(3)] == [0.0, 0.0, 1.0]
    assert rates.wait("b") == 0.0
    now[0] = 1.0
    assert [rates.wait("a"), rates.wait("a")] == [0.0, 1.0]
    for number in range(MOST_BUCKETS + 5):
        rates.wait(f"client {number}")
    assert len(rates._buckets) == MOST_BUCKETS
    assert Rates(0, 1).wait("a") == 0.0


def test_a_body_that_is_too_large_is_refused_whether_it_says_so_or_not(start: Start) -> None:
    client = start(body=1000)
    said = client.post("/translate", content=b"x" * 1001, headers={"Content-Type": "application/json"})
    unsaid = client.post("/translate", content=iter([b"x" * 600] * 2), headers={"Content-Type": "application/json"})
    assert (said.status_code, unsaid.status_code) == (413, 413)
    assert "1,000 bytes" in said.json()["error"]
    assert client.post("/v1/completions", content=b"x" * 1001).json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate, gzip"])
def test_packed_bodies_are_not_unpacked(client: TestClient, encoding: str) -> None:
    packed = client.post("/translate", content=b"\x1f\x8b", headers={"Content-Encoding": encoding})
    assert packed.status_code == 415


def test_every_answer_keeps_browsers_safe(client: TestClient) -> None:
    for response in (client.get("/"), client.get("/docs"), client.get("/nothing"), client.post("/translate", json={})):
        headers = response.headers
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["X-Frame-Options"] == "DENY"
        assert headers["Referrer-Policy"] == "no-referrer"
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
        assert "server" not in headers and "access-control-allow-origin" not in headers
    assert client.post("/translate", json=GOOD).headers["Cache-Control"] == "no-store"


def test_pages_elsewhere_may_not_ask_unless_they_are_allowed(start: Start) -> None:
    closed, opened, any_page = (
        start(),
        start(policy={"origins": ["https://a.example"]}),
        start(policy={"origins": ["*"]}),
    )
    theirs = {"Origin": "https://a.example"}
    assert closed.post("/translate", json=GOOD, headers=theirs).status_code == 403
    assert closed.post("/translate", json=GOOD, headers={"Origin": "null"}).status_code == 403
    assert closed.post("/translate", json=GOOD, headers={"Origin": "http://testserver"}).status_code == 200
    answer = opened.post("/translate", json=GOOD, headers=theirs)
    assert answer.headers["Access-Control-Allow-Origin"] == "https://a.example" and answer.headers["Vary"] == "Origin"
    assert opened.post("/translate", json=GOOD, headers={"Origin": "https://b.example"}).status_code == 403
    asked_first = opened.options("/translate", headers={**theirs, "Access-Control-Request-Method": "POST"})
    assert asked_first.status_code == 204 and "POST" in asked_first.headers["Access-Control-Allow-Methods"]
    assert any_page.post("/translate", json=GOOD, headers={"Origin": "https://b.example"}).status_code == 200


def test_a_page_of_ours_may_ask_however_its_address_is_written(client: TestClient) -> None:
    for origin, host in (("http://TestServer", "testserver"), ("http://example.org:80", "Example.org:80")):
        assert client.post("/translate", json=GOOD, headers={"Origin": origin, "Host": host}).status_code == 200


@pytest.mark.parametrize("wished", ["https://a.example/", "HTTPS://A.Example", "https://a.example"])
def test_other_pages_may_be_named_as_the_address_bar_shows_them(start: Start, wished: str) -> None:
    client = start(policy={"origins": [wished]})
    for origin in ("https://a.example", "https://A.EXAMPLE"):
        answer = client.post("/translate", json=GOOD, headers={"Origin": origin})
        assert (answer.status_code, answer.headers["Access-Control-Allow-Origin"]) == (200, origin)
    assert client.post("/translate", json=GOOD, headers={"Origin": "https://a.example:81"}).status_code == 403


@pytest.mark.parametrize(
    "wished",
    ["", "a.example", "a.example:8080", "https://", "https://a.example/page", "https://*", "http://a:b", "null"],
)
def test_what_no_browser_would_call_a_page_is_refused(wished: str) -> None:
    with pytest.raises(UsageError, match=f"^--cors is like https://example.org, .*, not '{re.escape(wished)}'$"):
        Policy(Bounds(), origins=[wished])


@pytest.mark.parametrize(
    ("wished", "host"),
    [
        ("Example.org", "example.org"), ("example.org:8080", "example.org:8080"), ("example.org:80", "EXAMPLE.ORG"),
        ("::1", "[::1]:8000"), ("[::1]:9000", "[::1]"), ("FD00::A", "[fd00::a]:8000"),
    ],
)  # fmt: skip
def test_a_further_name_may_have_capitals_and_a_port(start: Start, wished: str, host: str) -> None:
    client = start(policy={"hosts": ["localhost", wished]})
    assert client.get("/models", headers={"Host": host}).status_code == 200
    assert client.get("/models", headers={"Host": "evil.example"}).status_code == 403


def test_a_local_server_answers_to_its_own_names_only(start: Start) -> None:
    client = start(policy={"hosts": ["localhost", "127.0.0.1", "[::1]"]})
    for host in ("localhost:8000", "127.0.0.1", "[::1]:8000", "[::1]", "LOCALHOST"):
        assert client.get("/models", headers={"Host": host}).status_code == 200, host
    for host in ("evil.example", "evil.example:8000", "localhost.evil.example", ""):
        assert client.get("/models", headers={"Host": host}).status_code == 403, host


def test_counts_name_our_routes_and_nothing_that_a_client_sent(start: Start) -> None:
    client = start(backwards(), counting(), shouting(), policy={"keys": Keys([KEY])})
    right = {"Authorization": f"Bearer {KEY}"}
    client.post("/translate", json={**GOOD, "q": "Geheimnis", "api_key": KEY})
    client.get("/wp-admin/secret-path", headers=right)
    client.get("/v1/models/secret-model", headers=right)
    client.request("BREW", "/translate", headers=right)
    client.get("/models", headers={"Authorization": "Bearer secret-key-of-mine"})
    text = client.get("/metrics", headers=right).text
    assert 'clearhead_requests_total{method="POST",route="/translate",status="200"} 1.0' in text
    assert 'route="/v1/models/{model}"' in text and 'route="other"' in text and 'method="other"' in text
    assert 'clearhead_refused_total{reason="key"} 1.0' in text
    assert 'clearhead_tokens_total{task="Translating"}' in text and "clearhead_waiting 0.0" in text
    for secret in ("Geheimnis", "secret", KEY, "testclient", "BREW"):
        assert secret not in text


def test_a_full_queue_is_a_503_at_once_in_each_apis_form(start: Start) -> None:
    translator = Backwards()
    client = start(backwards(translator=translator), counting(), queue=1)
    translator.gate.clear()
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(client.post("/translate", json=GOOD))) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
            waited = threading.Event()
            for _ in range(3000):
                if translator.batches and (client.server.engine.waiting or thread is threads[0]):  # type: ignore[attr-defined]
                    break
                waited.wait(0.01)
        refused = client.post("/translate", json=GOOD)
        openai = client.post("/v1/completions", json={"model": "counting"})
    finally:
        translator.gate.set()
        for thread in threads:
            thread.join()
    assert refused.status_code == 503 and int(refused.headers["Retry-After"]) >= 1
    assert openai.status_code == 503 and openai.json()["error"]["type"] == "server_error"
    assert [answer.status_code for answer in answers] == [200, 200]


def test_requests_whose_tokens_are_not_counted_yet_wait_in_a_bounded_room_and_not_for_ever(start: Start) -> None:
    class Slow(Backwards):
        counted = threading.Event()

        def count(self, text: str) -> int:
            self.counted.wait(20)
            return super().count(text)

    client = start(backwards(translator=Slow()), counting(), queue=2, seconds=1.5)
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(client.post("/translate", json=GOOD))) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        for _ in range(3000):
            if client.server._being_prepared == 2:  # type: ignore[attr-defined]
                break
            threading.Event().wait(0.001)
        refused = client.post("/v1/completions", json={"model": "counting"})
        for thread in threads:
            thread.join()
    finally:
        Slow.counted.set()
    assert refused.status_code == 503 and int(refused.headers["Retry-After"]) >= 1
    assert [answer.status_code for answer in answers] == [503, 503]
    assert "took longer than 1.5 s" in answers[0].json()["error"]
    assert client.post("/translate", json=GOOD).status_code == 200


def test_one_text_at_once_is_enough_to_look_inside(start: Start) -> None:
    client = start(texts=1)
    assert client.post("/attention", json={"text": "eins", "target": "one"}).status_code == 200
    assert client.post("/classify", json={"text": ["a", "b"]}).status_code == 400


@pytest.mark.parametrize(
    ("kind", "text", "target", "status"),
    [
        ("translator", 200, 200, 200),
        ("translator", 200, 300, 400),
        ("translator", 300, 10, 400),
        ("gpt", 100, 100, 200),
        ("gpt", 200, 200, 400),
        ("gpt", 300, 0, 200),
    ],
)
def test_what_is_said_counts_among_the_tokens_that_are_looked_at(
    start: Start, kind: str, text: int, target: int, status: int
) -> None:
    client = start(Served("glass", kind, inspector=Glass()))
    body = {"text": "a" * text, **({"target": "b" * target} if target else {})}
    assert client.post("/attention", json=body).status_code == status


def test_a_draining_server_is_not_ready_and_closes_connections(client: TestClient) -> None:
    assert client.get("/readyz").json() == {"status": "ready"}
    client.server.policy.is_draining = True  # type: ignore[attr-defined]
    assert client.get("/readyz").status_code == 503 and client.get("/livez").status_code == 200
    assert client.post("/translate", json=GOOD).headers["Connection"] == "close"


def test_the_documentation_lists_every_route_without_a_script(client: TestClient) -> None:
    page = client.get("/docs").text
    assert "<script" not in page and not re.search(r"(src|href)=\"?(https?:)?//", page)
    for path in client.get("/openapi.json").json()["paths"]:
        assert path in page


@pytest.mark.parametrize("path", ["/health", "/", "/models", "/no-such-thing", "/translate"])
def test_head_is_answered_like_get_but_for_the_body(path: str) -> None:
    with Here(backwards()) as server:
        whole, head = (_asked(server.address, method, path) for method in ("GET", "HEAD"))
        counted = _asked(server.address, "GET", "/metrics")[2].decode()
    assert head[:2] == whole[:2] and head[0] == {"/no-such-thing": 404, "/translate": 405}.get(path, 200)
    assert whole[2] and head[2] == b""
    route = "other" if head[0] == 404 else path
    assert f'clearhead_requests_total{{method="HEAD",route="{route}",status="{head[0]}"}} 1.0' in counted


def _asked(address: str, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
    """The status, the headers and the body of an answer."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        headers = {name: value for name, value in response.getheaders() if name != "date"}
        return response.status, headers, response.read()
    finally:
        connection.close()
