"""The server at the socket: what clients do wrong or try on purpose changes nothing, and is not seen on the console."""

from __future__ import annotations

import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flinkish.errors import ConfigurationError, OperationError
from flinkish.rest import server as module
from flinkish.rest.route import Asked, Route, Text
from flinkish.rest.server import THREADS, RestServer, Tls, listening
from tests.support.certificates import certificate
from tests.support.processes import wait_until
from tests.support.rest_jobs import TOKEN, FakeJobs, api_of

pytest.importorskip("uvicorn")

TIMEOUT_S = 30.0
KNOWN = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
WHOLE = f"GET /jobs HTTP/1.1\r\n{KNOWN}\r\n".encode()


class Served:
    """A server of the tests: its port, and what its routes have seen."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.bodies: list[object] = []
        routes = [
            Route("GET", "/jobs", lambda asked: []),
            Route("GET", "/slow", self._slow),
            Route("GET", "/large", lambda asked: Text("x" * (8 << 20))),
            Route("POST", "/echo", self._echo),
            Route("POST", "/any", lambda asked: {}, takes_json=False),
        ]
        opened = listening("127.0.0.1", [0])
        self.port: int = opened.getsockname()[1]
        self.server = RestServer(api_of(FakeJobs(), routes), opened)
        self.server.start()

    def _slow(self, asked: Asked) -> str:
        self.go.wait(TIMEOUT_S)
        return "slow"

    def _echo(self, asked: Asked) -> object:
        self.bodies.append(dict(asked.body))
        return dict(asked.body)

    def connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S)

    def told(self, *parts: bytes) -> bytes:
        """What the server says to these bytes until it ends the connection, or has said a whole answer."""
        with self.connected() as client:
            for part in parts:
                try:
                    client.sendall(part)
                except OSError:
                    break
            return answer_of(client)

    def code(self, *parts: bytes) -> int:
        """The status code of that; 0: the connection was ended without one."""
        told = self.told(*parts)
        return int(told.split(b" ", 2)[1]) if told else 0


def answer_of(client: socket.socket) -> bytes:
    told = b""
    try:
        while chunk := client.recv(1 << 16):
            told += chunk
            head, end, body = told.partition(b"\r\n\r\n")
            sizes = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            if end and sizes and len(body) >= int(sizes[0].split(b":")[1]):
                return told
    except OSError:
        pass
    return told


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    try:
        assert served.code(WHOLE) == 200
        yield served
    finally:
        served.go.set()
        served.server.stop()


@pytest.fixture(autouse=True)
def _nothing_is_on_the_console(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    told = capfd.readouterr()
    assert (told.out, told.err) == ("", "")


@pytest.fixture
def threads_stay(served: Served) -> Iterator[None]:
    def named() -> list[str]:
        return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("flinkish-rest"))

    # those of the test before may just be ending
    wait_until(lambda: len(named()) == THREADS + 1, TIMEOUT_S, "the threads of this server alone")
    before = named()
    yield
    assert named() == before
    assert served.code(WHOLE) == 200, "it answers as before"


def request(*lines: str, method: str = "POST", path: str = "/echo") -> bytes:
    return (f"{method} {path} HTTP/1.1\r\n{KNOWN}" + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode()


HOSTILE: list[tuple[str, tuple[bytes, ...], set[int]]] = [
    ("a length of -1", (request("Content-Length: -1"),), {400}),
    ("a length that is no number", (request("Content-Length: abc"),), {400}),
    ("an empty length", (request("Content-Length: "),), {400}),
    ("two different lengths", (request("Content-Length: 2", "Content-Length: 3"), b"{} "), {400}),
    ("two lengths in one", (request("Content-Length: 2, 3"), b"{} "), {400}),
    ("a length and chunks", (request("Content-Length: 2", "Transfer-Encoding: chunked"), b"0\r\n\r\n"), {200, 400}),
    ("another encoding", (request("Transfer-Encoding: gzip"), b"0\r\n\r\n"), {400, 501}),
    ("a chunk of no size", (request("Transfer-Encoding: chunked"), b"zz\r\n{}\r\n0\r\n\r\n"), {400}),
    ("a chunk of another size", (request("Transfer-Encoding: chunked"), b"1\r\n{}\r\n0\r\n\r\n"), {400}),
    ("a chunk of a large size", (request("Transfer-Encoding: chunked"), b"f" * 40 + b"\r\n{}\r\n"), {400}),
    ("no HTTP", (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500 + b"\r\n\r\n",), {400}),
    ("no version", (b"GET /jobs\r\n\r\n",), {400}),
    ("version 2", (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",), {400, 403}),
    ("no host", (b"GET /jobs HTTP/1.1\r\n\r\n",), {400}),
    ("two hosts", (b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n",), {400}),
    ("a blank before a header", (request(" Folded: x", method="GET", path="/jobs"),), {200, 400, 401}),
    ("a header without a name", (request(": x", method="GET", path="/jobs"),), {400}),
    ("a zero in a header", (request("A: b\x00c", method="GET", path="/jobs"),), {400}),
    ("a header of 100 KB", (request("A: " + "x" * 100_000, method="GET", path="/jobs"),), {400, 431}),
    ("a path of 100 KB", (request(method="GET", path="/" + "x" * 100_000),), {400, 431}),
    ("2,000 headers", (request(*(f"A{n}: b" for n in range(2_000)), method="GET", path="/jobs"),), {400, 431}),
    ("300 short headers", (request(*(["A: b"] * 300), method="GET", path="/jobs"),), {431}),
    ("an address as the path", (request(method="GET", path="http://evil.example/jobs"),), {404}),
    ("a star", (request(method="OPTIONS", path="*"),), {404}),
    ("a tunnel", (b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n",), {400, 403}),
]


@pytest.mark.usefixtures("threads_stay")
@pytest.mark.parametrize(("parts", "codes"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_a_malformed_request_is_refused(served: Served, parts: tuple[bytes, ...], codes: set[int]) -> None:
    assert served.code(*parts) in codes | {0}, "if the client is still sending, it may learn nothing"


def test_what_is_no_http_is_answered_as_any_other_error(served: Served) -> None:
    told = served.told(request("Content-Length: abc"))
    assert list(json.loads(told.partition(b"\r\n\r\n")[2])) == ["errors"]


@pytest.mark.usefixtures("threads_stay")
@pytest.mark.parametrize(
    "lines",
    [
        ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA"),
        ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: eA==", "Sec-WebSocket-Version: 13"),
    ],
    ids=["HTTP/2", "web socket"],
)
def test_an_upgrade_is_not_taken_and_the_request_is_answered(served: Served, lines: tuple[str, ...]) -> None:
    assert served.code(request(*lines, method="GET", path="/jobs")) == 200


@pytest.mark.usefixtures("threads_stay")
def test_a_get_with_a_body_leaves_the_connection_as_it_was(served: Served) -> None:
    asked = request("Content-Length: 2", method="GET", path="/jobs") + b"{}"
    with served.connected() as client:
        for _ in range(5):
            client.sendall(asked)
            assert answer_of(client).startswith(b"HTTP/1.1 200")


@pytest.mark.usefixtures("threads_stay")
def test_requests_that_come_at_once_are_answered_in_their_order(served: Served) -> None:
    with served.connected() as client:
        bodies = [f'{{"n":{n}}}'.encode() for n in range(10)]
        client.sendall(b"".join(request(f"Content-Length: {len(body)}") + body for body in bodies))
        told = b""
        while told.count(b"HTTP/1.1 200") < 10 or not told.endswith(b"}"):
            told += client.recv(1 << 16)
    assert [body for body in bodies if body in told] == bodies
    assert served.bodies == [{"n": n} for n in range(10)]


# ------------------------------------------------------------------ bodies


@pytest.mark.usefixtures("threads_stay")
def test_a_body_is_counted_while_it_comes(served: Served) -> None:
    part = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    many = (request("Transfer-Encoding: chunked"), *([part] * 40), b"0\r\n\r\n")
    assert served.code(*many) == 413
    fitting = (request("Transfer-Encoding: chunked"), *([part] * 15), b"2\r\n{}\r\n0\r\n\r\n")
    assert served.code(*fitting) == 200


@pytest.mark.usefixtures("threads_stay")
def test_who_may_not_ask_is_refused_before_the_body_is_read(served: Served) -> None:
    head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000000\r\nExpect: 100-continue\r\n\r\n"
    assert served.code(head) == 401
    endless = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000000\r\n\r\n"
    assert served.code(endless, *([b" " * (1 << 16)] * 40)) in (0, 401)
    assert not served.bodies


@pytest.mark.usefixtures("threads_stay")
def test_a_body_that_is_promised_and_does_not_come_is_not_waited_for(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BODY_S", 0.2)
    assert served.code(request("Content-Length: 1000000000000"), b"{") == 408


# ------------------------------------------------------------------ clients that take their time, or leave


@pytest.mark.usefixtures("threads_stay")
def test_half_requests_of_400_clients_take_no_thread_and_are_ended(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEAD_S", 1.0)
    clients = [served.connected() for _ in range(400)]
    try:
        for client in clients:
            client.sendall(b"GET /jobs HTTP/1.1\r\nHost: loc")
        assert served.code(WHOLE) == 200, "others are answered meanwhile"
        for client in clients:
            assert answer_of(client) == b""
    finally:
        for client in clients:
            client.close()


@pytest.mark.usefixtures("threads_stay")
def test_a_head_that_comes_byte_by_byte_is_not_waited_for(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEAD_S", 1.0)
    with served.connected() as client:
        ended_s = time.monotonic() + TIMEOUT_S
        with pytest.raises(OSError):
            while time.monotonic() < ended_s:
                client.sendall(b"A")
                time.sleep(0.05)


@pytest.mark.usefixtures("threads_stay")
@pytest.mark.parametrize("how", ["head", "body", "answer", "reset"])
def test_a_client_that_leaves_in_the_midst_is_no_error(
    served: Served, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        client = served.connected()
        if how == "head":
            client.sendall(b"GET /jobs HTTP/1.1\r\nHo")
        elif how == "body":
            client.sendall(request("Content-Length: 100") + b"{")
        else:
            served.go.clear()
            client.sendall(request(method="GET", path="/slow"))
            if how == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        client.close()
        served.go.set()
        assert served.code(WHOLE) == 200
    assert not caplog.records


@pytest.mark.usefixtures("threads_stay")
def test_who_does_not_read_its_answer_is_not_waited_for(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_S", 1.0)
    monkeypatch.setattr(module, "CLOSING_S", 1.0)
    with served.connected() as client:
        client.sendall(request("Connection: close", method="GET", path="/large"))
        time.sleep(4)
        monkeypatch.undo()
        assert len(answer_of(client)) < 8 << 20


@pytest.mark.usefixtures("threads_stay")
def test_slow_answers_hold_nobody_up_who_can_still_be_answered(served: Served) -> None:
    served.go.clear()
    with served.connected() as slow:
        slow.sendall(request(method="GET", path="/slow"))
        assert served.code(WHOLE) == 200
        served.go.set()
        assert b'"slow"' in answer_of(slow)


# ------------------------------------------------------------------ the program's own loggers and its end


def test_the_programs_own_uvicorn_logs_as_it_did(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        logging.getLogger("uvicorn.error").info("of the program")
        logging.getLogger("asyncio").warning("of the program")
    assert [record.getMessage() for record in caplog.records] == ["of the program"] * 2


def test_what_clients_do_wrong_is_logged_for_who_looks_for_it(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "flinkish.RestServerEndpoint"):
        served.code(request("Content-Length: abc"))
    names = {record.name for record in caplog.records if "Invalid HTTP" in record.getMessage()}
    assert names == {"flinkish.RestServerEndpoint"}


def test_a_server_that_is_stopped_finishes_what_it_answers_and_frees_its_port() -> None:
    served = Served()
    assert served.code(WHOLE) == 200
    served.go.clear()
    with served.connected() as client:
        client.sendall(request(method="GET", path="/slow"))
        stopping = threading.Thread(target=served.server.stop)
        stopping.start()
        time.sleep(0.2)
        served.go.set()
        assert b'"slow"' in answer_of(client)
    stopping.join(TIMEOUT_S)
    listening("127.0.0.1", [served.port]).close()
    wait_until(
        lambda: not [one for one in threading.enumerate() if one.name.startswith("flinkish-rest")], TIMEOUT_S, "threads"
    )


def test_a_server_that_is_stopped_at_once_ends() -> None:
    served = Served()
    served.server.stop()
    with pytest.raises(OSError):
        served.connected().close()


# ------------------------------------------------------------------ addresses and certificates


def test_the_first_free_port_is_taken() -> None:
    first = listening("127.0.0.1", [0])
    taken = first.getsockname()[1]
    second = listening("127.0.0.1", [taken, 0])
    assert second.getsockname()[1] != taken
    with pytest.raises(OperationError, match=f"no port {taken} of 127.0.0.1 is free"):
        listening("127.0.0.1", [taken])
    first.close()
    second.close()


def test_an_address_of_nobody_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="nobody knows the address"):
        listening("no such host.invalid", [0])


@pytest.mark.parametrize("password", [None, "a password"])
def test_a_server_with_a_certificate_speaks_https_alone(tmp_path: Path, password: str | None) -> None:
    file = certificate(tmp_path, password)
    tls = Tls(str(file), password)
    tls.check()
    opened = listening("127.0.0.1", [0])
    port = opened.getsockname()[1]
    server = RestServer(api_of(FakeJobs(), [Route("GET", "/jobs", lambda asked: [])]), opened, tls)
    server.start()
    try:
        context = ssl.create_default_context(cafile=str(file))
        with (
            socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as client,
        ):
            client.sendall(WHOLE)
            assert answer_of(client).startswith(b"HTTP/1.1 200")
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as plain:
            plain.sendall(WHOLE)
            assert b"200" not in answer_of(plain)
    finally:
        server.stop()


def broken(folder: Path, how: str) -> Tls:
    if how == "missing":
        return Tls(str(folder / "none.pem"))
    if how == "another password":
        return Tls(str(certificate(folder, "a password")), "another one")
    if how == "no password":
        return Tls(str(certificate(folder, "a password")))
    (folder / "store.jks").write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    return Tls(str(folder / "store.jks"))


@pytest.mark.parametrize("how", ["missing", "another password", "no password", "a keystore of Java"])
def test_a_certificate_that_cannot_be_used_is_refused(tmp_path: Path, how: str) -> None:
    with pytest.raises(ConfigurationError, match="the certificate cannot be used") as refused:
        broken(tmp_path, how).check()
    assert "a password" not in str(refused.value)
