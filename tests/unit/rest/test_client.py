"""The client of the REST API: what answers wrongly, or not at all, is one error that names the address."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flinkish.errors import (
    ConfigurationError,
    ConnectionFailedError,
    FinalOperationError,
    FlinkishError,
    OperationError,
)
from flinkish.rest.client import RestClient, token_in

TIMEOUT_S = 20.0
JSON = "HTTP/1.1 {} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}"


def answer(code: int, body: str) -> bytes:
    return JSON.format(code, len(body), body).encode()


@pytest.fixture
def served() -> Iterator[Callable[[bytes], str]]:
    """Answers the next request with these bytes; returns the address."""
    opened: list[socket.socket] = []

    def serve(told: bytes) -> str:
        listening = socket.create_server(("127.0.0.1", 0))
        opened.append(listening)

        def once() -> None:
            client, _ = listening.accept()
            with client:
                asked.append(client.recv(1 << 16))
                client.sendall(told)

        threading.Thread(target=once, daemon=True).start()
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    yield serve
    for one in opened:
        one.close()
    asked.clear()


asked: list[bytes] = []

REFUSED: list[tuple[bytes, type[FlinkishError], str]] = [
    (answer(404, '{"errors": ["Job x not found"]}'), FinalOperationError, "Job x not found"),
    (answer(409, '{"errors": ["it is being stopped"]}'), OperationError, "it is being stopped"),
    (answer(500, '{"errors": ["an error of its own"]}'), OperationError, "an error of its own"),
    (answer(400, '{"errors": ["no id"]}'), ConfigurationError, "no id"),
    (answer(403, '{"errors": ["another host"]}'), ConfigurationError, "another host"),
    (answer(401, '{"errors": ["who are you"]}'), ConfigurationError, "--token-file"),
    (answer(503, '{"errors": ["the driver is away"]}'), ConnectionFailedError, "the driver is away"),
    (answer(404, "<html>"), ConnectionFailedError, "HTTP status 404"),
    (answer(500, '{"errors": []}'), ConnectionFailedError, "HTTP status 500"),
    (answer(502, "[" * 100_000), ConnectionFailedError, "HTTP status 502"),
    (answer(302, '{"errors": ["elsewhere"]}'), OperationError, "elsewhere"),
    (answer(200, "<html>"), ConnectionFailedError, "no JSON"),
    (answer(200, "[" * 100_000), ConnectionFailedError, "no JSON"),
    (b"", ConnectionFailedError, "no REST API answers"),
    (b"SSH-2.0-OpenSSH\r\n", ConnectionFailedError, "no REST API answers"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}", ConnectionFailedError, "broken off"),
]


@pytest.mark.parametrize(("told", "error", "said"), REFUSED, ids=[f"{n}-{row[2]}" for n, row in enumerate(REFUSED)])
def test_what_is_no_answer_is_an_error(
    told: bytes, error: type[FlinkishError], said: str, served: Callable[[bytes], str]
) -> None:
    client = RestClient(served(told), "token")
    with pytest.raises(error, match=said) as raised:
        client.get("/jobs")
    assert type(raised.value) is error


def test_a_request_has_the_token_and_asks_no_proxy(
    served: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    url = served(answer(200, "[1]"))
    assert RestClient(f"{url}/prefix/", "a-token").get("/jobs", a="b c") == [1]
    head = asked[-1].decode().split("\r\n")
    assert head[0] == "GET /prefix/jobs?a=b+c HTTP/1.1"
    assert "authorization: Bearer a-token" in head


def test_who_does_not_answer_is_waited_for_no_longer_than_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = RestClient(f"127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.1)
        with pytest.raises(ConnectionFailedError, match="timed out"):
            client.get("/jobs")


@pytest.mark.parametrize(
    "address", ["", "http://", "ftp://host", "host:port", "http://u:p@host", "http://h?a=b", "[::1"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match="no address of a REST API"):
        RestClient(address)


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("host:8081", "http://host:8081"),
        ("https://host/prefix/", "https://host/prefix"),
        ("[::1]:8081", "http://[::1]:8081"),
    ],
)
def test_an_address_may_lack_its_scheme(address: str, url: str) -> None:
    assert RestClient(address).url == url


@pytest.mark.parametrize(
    ("content", "token"),
    [(b"a-token\n", "a-token"), (b"", None), (b"two words", None), (b"\xff\xfe", None), (None, None)],
)
def test_a_token_is_the_one_word_of_its_file(content: bytes | None, token: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    assert token_in(tmp_path / "token") == token
