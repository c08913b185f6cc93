"""A reverse proxy before an S3 server that records each request, can delay all of them, and can cut the connections of
some.

Rule: requests pass unchanged, with the header ``Host``, so that their signatures stay valid, and a connection that the
server has closed is never used again, so that a client sees no error that it would not see without the proxy, but for
those that it was told to cause.

``python -m tests.support.counting_proxy LISTEN_PORT SERVER_PORT [delay in ms]`` prints one line for each request.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

_HEADS_BYTES_MAX = 2**20
#: Where a connection is cut: in the middle of the request, before the answer, or in the middle of the answer. In the
#: latter two cases the server has done what it was asked for. Or the proxy answers as S3 does while another conditional
#: request for the object is under way, and the server hears nothing of it.
Where = Literal["in the request", "before the answer", "in the answer", "by a conflict"]
_CONFLICT = b"<Error><Code>ConditionalRequestConflict</Code><Message>another request is under way</Message></Error>"
_CALLERS = (("boto3", "boto"), ("python", "python"), ("pyarrow", "aws-sdk-cpp"), ("hadoop", "hadoop"), ("java", "java"))


@dataclass(frozen=True)
class Request:
    """One request that the server has answered, even if the proxy has cut the answer.

    Attributes:
        time_s: when the answer had passed, in seconds since 1970.
        method: the method of HTTP; LIST for the listing of a bucket, COPY for a PUT that copies on the server.
        status: the status of the answer.
        size_bytes: the size of the request's body.
        caller: the library that has sent it, by its header ``User-Agent``.
        path: the object's path, which begins with the bucket; for LIST the bucket and the prefix.
        conditions: the headers that make it conditional, such as ``if-none-match=*``.
    """

    time_s: float
    method: str
    status: int
    size_bytes: int
    caller: str
    path: str
    conditions: tuple[str, ...] = ()

    def __str__(self) -> str:
        conditions = ",".join(self.conditions) or "-"
        return f"{self.time_s:.3f} {self.method} {self.status} {self.size_bytes} {self.caller} {self.path} {conditions}"


@dataclass
class _Cut:
    method: str
    where: Where
    times: int
    prefix: str


class CountingProxy:
    """A proxy at a free port of 127.0.0.1, in a thread of its own.

    Args:
        server_port: the port of the S3 server on this machine.
        delay_ms: how long each request waits before it is passed on, as the latency of a real store.
        listen_port: the port of the proxy; 0 takes a free one.
        observe: is called with each request after its answer has passed, in the proxy's thread.

    Example:
        with CountingProxy(server.port) as proxy:
            ...
            assert proxy.by_method()["LIST"] < 5
    """

    def __init__(
        self,
        server_port: int,
        delay_ms: float = 0,
        listen_port: int = 0,
        observe: Callable[[Request], None] = lambda request: None,
    ) -> None:
        self.delay_ms = delay_ms
        self.port = listen_port
        self._server_port = server_port
        self._observe = observe
        self._requests: list[Request] = []
        self._cuts: list[_Cut] = []
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._listens = threading.Event()
        self._thread = threading.Thread(target=self._run, name="counting-proxy", daemon=True)

    @property
    def endpoint(self) -> str:
        """The URL at which clients reach the server through this proxy."""
        return f"http://127.0.0.1:{self.port}"

    def requests(self, prefix: str = "") -> list[Request]:
        """Returns the requests since the last `clear` whose path begins with ``prefix``, in the order of their ends."""
        with self._lock:
            return [request for request in self._requests if request.path.startswith(prefix)]

    def by_method(self, prefix: str = "") -> Counter[str]:
        """Returns how many requests of each method there were since the last `clear`."""
        return Counter(request.method for request in self.requests(prefix))

    def clear(self) -> None:
        """Forgets the requests so far."""
        with self._lock:
            self._requests.clear()

    def cut(self, method: str, where: Where, times: int = 1, prefix: str = "") -> None:
        """Closes the connections of the next ``times`` requests of this method whose path begins with ``prefix``."""
        with self._lock:
            self._cuts.append(_Cut(method, where, times, prefix))

    def cuts_left(self) -> int:
        """Returns how many connections are still to be cut."""
        with self._lock:
            return sum(cut.times for cut in self._cuts)

    def __enter__(self) -> CountingProxy:
        self._thread.start()
        if not self._listens.wait(30):
            raise RuntimeError(f"the proxy does not listen at port {self.port}; see the traceback of its thread")
        return self

    def __exit__(self, *raised: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        listening = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=_HEADS_BYTES_MAX)
        )
        self.port = listening.sockets[0].getsockname()[1]
        self._listens.set()
        self._loop.run_forever()
        listening.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while True:
                raw, first, headers = await _head_of(reader)
                await asyncio.sleep(self.delay_ms / 1000)
                if server is None or server[0].at_eof() or server[1].is_closing():
                    server = await asyncio.open_connection("127.0.0.1", self._server_port, limit=_HEADS_BYTES_MAX)
                method, path = _operation(first, headers)
                where = self._take_cut(method, path)
                if where == "by a conflict":
                    await _refuse(reader, writer, headers)
                    break
                if where == "in the request":
                    await _pass_half(reader, writer, *server, raw, headers)
                    break
                status, size, ends = await _exchange(reader, writer, *server, raw, method, headers, where)
                self._record(method, path, status, size, headers)
                if ends or where is not None:
                    break
        except asyncio.IncompleteReadError as error:
            if error.partial:
                print(f"counting proxy: a request that was cut off: {error!r}", file=sys.stderr, flush=True)
        except asyncio.CancelledError:
            pass  # the proxy ends, and the client keeps its connection
        except ConnectionError as error:
            print(f"counting proxy: {error!r}", file=sys.stderr, flush=True)
        finally:
            for each in (writer, *(server[1:] if server else ())):
                each.close()

    def _take_cut(self, method: str, path: str) -> Where | None:
        with self._lock:
            for cut in self._cuts:
                if cut.times and cut.method == method and path.startswith(cut.prefix):
                    cut.times -= 1
                    return cut.where
        return None

    def _record(self, method: str, path: str, status: int, size: int, headers: Mapping[str, str]) -> None:
        conditions = tuple(f"{name}={headers[name]}" for name in ("if-none-match", "if-match") if name in headers)
        request = Request(time.time(), method, status, size, _caller(headers.get("user-agent", "")), path, conditions)
        with self._lock:
            self._requests.append(request)
        self._observe(request)


def _operation(first: str, headers: Mapping[str, str]) -> tuple[str, str]:
    """The method and the path of a request, as `Request` names them, from its first line."""
    method, target, _ = first.split(" ", 2)
    parts = urlsplit(target)
    path, query = unquote(parts.path).strip("/"), parse_qs(parts.query)
    if method == "GET" and "/" not in path:
        method, path = "LIST", f"{path}/{query.get('prefix', [''])[0]}"
    return ("COPY" if "x-amz-copy-source" in headers else method), path


async def _head_of(reader: asyncio.StreamReader) -> tuple[bytes, str, dict[str, str]]:
    raw = await reader.readuntil(b"\r\n\r\n")
    first, *lines = raw.decode("latin1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return raw, first, {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    from_server: asyncio.StreamReader,
    to_server: asyncio.StreamWriter,
    raw: bytes,
    method: str,
    headers: Mapping[str, str],
    where: Where | None,
) -> tuple[int, int, bool]:
    """Passes one request on, and its answer back as far as it is not to be cut; returns the status, the size of the
    request's body, and whether the server ends the connection."""
    to_server.write(raw)
    # the body goes on while the answer is awaited: a client may wait for "100 Continue" first
    body = asyncio.ensure_future(_copy(reader, to_server, headers))
    try:
        while True:
            head, first, answer = await _head_of(from_server)
            status = int(first.split(" ")[1])
            if status >= 200 and where == "before the answer":
                return status, await body, True
            writer.write(head)
            await writer.drain()
            if status >= 200:
                break
        if where == "in the answer":
            writer.write(await from_server.read(int(answer["content-length"]) // 2))
            return status, await body, True
        if method != "HEAD" and status not in (204, 304):
            await _copy(from_server, writer, answer)
        return status, await body, answer.get("connection", "").lower() == "close"
    finally:
        body.cancel()


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: Mapping[str, str]) -> None:
    """Answers a request with 409 in place of the server."""
    if "expect" not in headers:
        await reader.readexactly(int(headers.get("content-length", "0")))
    head = f"HTTP/1.1 409 Conflict\r\nContent-Length: {len(_CONFLICT)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + _CONFLICT)
    await writer.drain()


async def _pass_half(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    from_server: asyncio.StreamReader,
    to_server: asyncio.StreamWriter,
    raw: bytes,
    headers: Mapping[str, str],
) -> None:
    """Passes a request on as far as the middle of its body."""
    to_server.write(raw)
    if "expect" in headers:
        writer.write((await _head_of(from_server))[0])
    size = int(headers.get("x-amz-decoded-content-length") or headers.get("content-length", "0"))
    if size:
        to_server.write(await reader.readexactly(size // 2))
    await to_server.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: Mapping[str, str]) -> int:
    """Passes a body on; returns its size."""
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return await _copy_chunks(reader, writer)
    size = remaining = int(headers.get("content-length", "0"))
    while remaining:
        data = await reader.read(min(remaining, 65536))
        if not data:
            raise ConnectionError("a body ended before its Content-Length")
        writer.write(data)
        await writer.drain()
        remaining -= len(data)
    return size


async def _copy_chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    size = 0
    while True:
        line = await reader.readline()
        writer.write(line)
        length = int(line.split(b";")[0], 16)
        if length == 0:
            while (line := await reader.readline()) not in (b"\r\n", b""):
                writer.write(line)
            writer.write(line)
            await writer.drain()
            return size
        writer.write(await reader.readexactly(length + 2))
        size += length
        await writer.drain()


def _caller(agent: str) -> str:
    return next((name for name, mark in _CALLERS if mark in agent.lower()), "other")


def main() -> None:
    """Runs a proxy at the ports of the command line until Ctrl-C."""
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: python -m tests.support.counting_proxy LISTEN_PORT SERVER_PORT [delay in ms]")
    listen, server, *delay = sys.argv[1:]
    with CountingProxy(
        int(server), float(delay[0]) if delay else 0, int(listen), observe=lambda request: print(request, flush=True)
    ):
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    main()
