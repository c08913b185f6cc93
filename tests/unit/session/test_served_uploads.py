"""Uploads over a socket: bounded while they come, and nothing stays of what does not become whole."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from flinkish.rest.server import RestServer, listening
from tests.support.processes import wait_until
from tests.support.rest_jobs import TOKEN
from tests.unit.session.test_routes import Session

TIMEOUT_S = 30.0
LIMIT = 1 << 20
FORM = b'--B\r\nContent-Disposition: form-data; name="jarfile"; filename="a.py"\r\n\r\n'
END = b"\r\n--B--\r\n"


class ServedSession(Session):
    """A session that is served on a port."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        opened = listening("127.0.0.1", [0])
        self.port: int = opened.getsockname()[1]
        self.server = RestServer(self.api, opened, threads=2)
        self.server.start()

    def files(self) -> list[str]:
        return os.listdir(self.uploads.folder)

    def sent(self, *parts: bytes, token: str = TOKEN, length: int | None = None) -> socket.socket:
        """A connection on which a head and the beginning of a body were sent."""
        size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        head = (
            f"POST /jars/upload HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: multipart/form-data; boundary=B\r\n{size}\r\nConnection: close\r\n\r\n"
        )
        client = socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S)
        client.sendall(head.encode())
        for part in parts:
            client.sendall(part if length is not None else b"%x\r\n%s\r\n" % (len(part), part))
        if length is None:
            client.sendall(b"0\r\n\r\n")
        return client


def answer_on(client: socket.socket) -> tuple[int, bytes]:
    told = b""
    while chunk := client.recv(1 << 16):
        told += chunk
    client.close()
    return int(told.split(b" ", 2)[1]), told.partition(b"\r\n\r\n")[2]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedSession]:
    served = ServedSession(tmp_path)
    yield served
    served.server.stop()


@pytest.mark.parametrize("chunked", [True, False])
def test_a_program_comes_in_pieces(chunked: bool, served: ServedSession) -> None:
    parts = [FORM[:20], FORM[20:], b"print(1)", END[:3], END[3:]]
    code, body = answer_on(served.sent(*parts, length=None if chunked else sum(map(len, parts))))
    assert code == 200 and b'"status":"success"' in body
    (name,) = served.files()
    assert (served.uploads.folder / name).read_bytes() == b"print(1)"


@pytest.mark.parametrize("chunked", [True, False])
def test_a_body_that_is_too_large_is_refused(chunked: bool, served: ServedSession) -> None:
    parts = [FORM, *[b"x" * (1 << 18)] * 8, END]
    code, body = answer_on(served.sent(*parts, length=None if chunked else sum(map(len, parts))))
    assert code == 413 and b"rest.server.max-content-length" in body
    assert served.files() == []


def test_nothing_is_written_for_who_may_not_ask(served: ServedSession) -> None:
    code, body = answer_on(served.sent(FORM, b"x" * 1_000, END, token="wrong-token-of-another"))
    assert code == 401 and list(served.files()) == []


def test_of_a_client_that_leaves_in_the_midst_nothing_stays(
    served: ServedSession, capfd: pytest.CaptureFixture[str]
) -> None:
    client = served.sent(FORM, b"x" * 200_000, length=500_000)
    wait_until(served.files, TIMEOUT_S, "the beginning of the file")
    client.close()
    wait_until(lambda: served.files() == [], TIMEOUT_S, "its end")
    assert capfd.readouterr().err == ""


def test_a_body_that_is_no_form_is_refused(served: ServedSession) -> None:
    code, body = answer_on(served.sent(b"print(1)", length=8))
    assert code == 400 and b"is no form" in body and served.files() == []
    code, body = answer_on(served.sent(length=0))
    assert code == 400 and b"empty" in body
