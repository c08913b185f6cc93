"""The HTTP server: uvicorn and Starlette, with one route, in a thread beside the jobs.

Rule: everything of a request is bounded: the time and the size of its head and of its body, the number of connections,
the threads that answer. What clients do wrong is nothing that anybody must read: it is logged for who looks for it, and
never on the console of the program.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flinkish.errors import ConfigurationError, OperationError, message_of
from flinkish.rest.api import MAX_BODY_BYTES, Answer, Api, BodyTooLargeError, Receiver, refusal, too_large

if TYPE_CHECKING:
    from starlette.requests import Request

    Adapter = logging.LoggerAdapter[logging.Logger]
else:
    # Python 3.10 has no parameter for it
    Adapter = logging.LoggerAdapter

_LOG = logging.getLogger("flinkish.RestServerEndpoint")

#: Seconds for the head of a request, for all of one with its answer, and for the end of a connection.
HEAD_S, REQUEST_S, CLOSING_S = 20.0, 180.0, 20.0
#: Seconds for a body, and between two requests of a connection.
BODY_S, _KEEP_ALIVE_S = 60.0, 5
#: Seconds for a body that is written to a file.
_FILE_S = 150.0
#: The most bytes of a head, and the most headers.
_MAX_HEAD, _MAX_HEADERS = 16 << 10, 200
#: The most connections at which requests are answered, and the most that are kept.
_MAX_BUSY, _MAX_CONNECTIONS = 500, 600
#: How much of a body that is too large, or of one that nobody needs, is read so that its sender gets to the answer.
_DRAINED, _DRAINED_OF_REFUSED = 256 << 20, MAX_BODY_BYTES
#: Threads that answer requests.
THREADS = 4
#: Seconds that the server has to end.
_END_S = 2.0

#: Loggers of libraries that complain about clients.
_OF_LIBRARIES = ("uvicorn.error", "asyncio")


@dataclass(frozen=True)
class Tls:
    """The certificate of the server: a PEM file with the private key and the chain of certificates."""

    file: str
    password: str | None = field(default=None, repr=False)

    def check(self) -> None:
        """Check that the file can be used.

        Raises:
            ConfigurationError: it cannot.
        """
        import ssl

        try:
            # a password that is asked for at a terminal would hold the program up
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.file, password=self.password or "")
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"the certificate cannot be used: {message_of(error)}",
                where=f"security.ssl.rest.keystore, {self.file}",
                expected="a PEM file with a private key and its certificates, and security.ssl.rest.key-password if "
                "the key has one; not a keystore of Java",
            ) from error


class _Demoted(Adapter):
    """Logs whatever its users think of it as something that only who looks for it wants to see."""

    @property
    def level(self) -> int:
        """As loggers have it."""
        return logging.WARNING

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        """Log at DEBUG."""
        super().log(logging.DEBUG, msg, *args, **kwargs)


class _OfThread(logging.Filter):
    """Takes the records of one thread out of a library's logger, and leaves those of the program's own servers."""

    def __init__(self, thread: int, logger: Adapter) -> None:
        super().__init__()
        self._thread = thread
        self._logger = logger

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is none of this thread."""
        if record.thread != self._thread:
            return True
        self._logger.debug("%s", record.getMessage(), exc_info=record.exc_info)
        return False


class _Pool:
    """Threads that answer, without the hooks by which those of `concurrent.futures` end with the program's last line:
    what was asked for before is answered after it."""

    def __init__(self, threads: int) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"flinkish-rest-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    async def answer(self, work: Callable[[], Answer]) -> Answer:
        """What the work returns, which one of the threads does."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Answer] = loop.create_future()

        def finish(answer: Answer | None, error: BaseException | None) -> None:
            if done.cancelled():
                return
            if error is not None:
                done.set_exception(error)
            elif answer is not None:
                done.set_result(answer)

        def run() -> None:
            answer, error = None, None
            try:
                answer = work()
            except BaseException as failure:
                error = failure
            # the loop may be closed: then nobody waits any more
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(finish, answer, error)

        self._work.put(run)
        return await done

    def close(self) -> None:
        """End the threads when they have done what they have begun."""
        for _ in self._threads:
            self._work.put(None)


def listening(address: str, ports: list[int]) -> socket.socket:
    """A socket that listens on the first of the ports that is free.

    Raises:
        ConfigurationError: the address is none of this machine.
        OperationError: none of the ports is free.
    """
    try:
        family, kind, protocol, _, there = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ConfigurationError(
            f"nobody knows the address {address!r}: {error.strerror or error}",
            where="rest.bind-address",
            expected="an address of this machine",
        ) from error
    last: OSError | None = None
    for port in ports:
        opened = socket.socket(family, kind, protocol)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind((there[0], port, *there[2:]))
            opened.listen(128)
            opened.setblocking(False)
            return opened
        except OSError as error:
            opened.close()
            last = error
    reason = "" if last is None else f": {last.strerror}"
    shown = f"port {ports[0]}" if len(ports) == 1 else f"port from {ports[0]} to {ports[-1]}"
    raise OperationError(f"no {shown} of {address} is free{reason}", hint="set rest.bind-port")


class RestServer:
    """Serves an API on a socket, in a thread of its own.

    Args:
        api: answers the requests.
        opened: the socket, which listens.
        tls: the certificate; None: plain HTTP.
        threads: how many requests are answered at a time.
    """

    def __init__(self, api: Api, opened: socket.socket, tls: Tls | None = None, threads: int = THREADS) -> None:
        self._api = api
        self._threads = threads
        self._socket = opened
        self._tls = tls
        self._logger = _Demoted(_LOG, {})
        self._pool: _Pool | None = None
        self._server: Any = None
        self._stopped = False
        self._thread = threading.Thread(target=self._serve, name="flinkish-rest", daemon=True)

    def start(self) -> None:
        """Start the thread. Clients can connect from now on, and are answered a moment later."""
        self._thread.start()

    def stop(self) -> None:
        """End the server; what is being answered is finished, if it takes no longer than a second."""
        self._stopped = True
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join(_END_S)
        if self._pool is not None:
            self._pool.close()

    def _serve(self) -> None:
        filters = [(logging.getLogger(name), _OfThread(threading.get_ident(), self._logger)) for name in _OF_LIBRARIES]
        for logger, one in filters:
            logger.addFilter(one)
        try:
            # not one that the program has asked for by a policy
            loop = asyncio.SelectorEventLoop()
            loop.set_exception_handler(self._log_of_loop)
            try:
                loop.run_until_complete(self._until_stopped())
            finally:
                loop.close()
        except Exception:
            _LOG.warning("the REST API has ended:", exc_info=True)
        finally:
            self._socket.close()
            for logger, one in filters:
                logger.removeFilter(one)

    def _log_of_loop(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._logger.debug("%s", context.get("message"), exc_info=context.get("exception"))

    async def _until_stopped(self) -> None:
        import uvicorn

        from flinkish.rest.connection import Connection

        tls: dict[str, Any] = {}
        if self._tls is not None:
            tls = {"ssl_certfile": self._tls.file, "ssl_keyfile_password": self._tls.password}
        config = uvicorn.Config(
            self._application,
            interface="asgi3",
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=1,
            limit_concurrency=_MAX_BUSY,
            h11_max_incomplete_event_size=_MAX_HEAD,
            callback_notify=self._sweep,
            timeout_notify=1,
            **tls,
        )
        self._pool = _Pool(self._threads)
        self._server = uvicorn.Server(config)
        Connection.quiet = self._logger
        Connection.most = _MAX_CONNECTIONS
        if not self._stopped:
            await self._server.serve(sockets=[self._socket])

    async def _sweep(self) -> None:
        """End the connections that take too long. Called about once a second."""
        now_s = asyncio.get_running_loop().time()
        for connection in list(self._server.server_state.connections):
            connection.end_if_late(now_s, HEAD_S, REQUEST_S, CLOSING_S)

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        from starlette.requests import ClientDisconnect, Request
        from starlette.responses import Response

        if scope["type"] != "http":
            return
        try:
            answer = await self._answer(Request(scope, receive))
        except ClientDisconnect:
            return
        except Exception:
            _LOG.exception("a request could not be answered:")
            answer = _closing(refusal(500, "flinkish could not answer this: see the driver's log."))
        response = Response(answer.body, answer.status)
        if answer.body:
            response.headers["content-type"] = answer.content_type
        for name, value in answer.headers:
            response.headers.append(name, value)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Answer:
        path, query = (
            request.scope["raw_path"].decode("ascii", "replace"),
            request.scope["query_string"].decode("latin-1"),
        )
        headers = _headers(request)
        sizes = [len(name) + len(value) for name, value in request.headers.raw]
        if len(sizes) > _MAX_HEADERS or sum(sizes) + len(path) + len(query) > _MAX_HEAD:
            return _closing(refusal(431, f"The head has more than {_MAX_HEADERS} headers or {_MAX_HEAD:,} bytes."))
        refused = self._api.refused(path, query, headers)
        try:
            if refused is not None:
                if "expect" in headers:
                    # who waits to be asked for the body is not asked
                    return _closing(refused)
                whole = await asyncio.wait_for(_body(request, _DRAINED_OF_REFUSED), BODY_S)
                return _closing(refused) if whole is None else refused
            receiver = self._api.receiver(request.method, path, headers)
            if receiver is not None:
                return await self._received(receiver, request, path)
            body = await asyncio.wait_for(_body(request, _DRAINED), BODY_S)
        except asyncio.TimeoutError:
            return _closing(refusal(408, f"The body has not come within {BODY_S:g} s."))
        if body is None:
            return too_large()
        assert self._pool is not None
        return await self._pool.answer(lambda: self._api.answer(request.method, path, query, headers, body))

    async def _received(self, receiver: Receiver, request: Request, path: str) -> Answer:
        """The answer to a request whose body a receiver takes while it comes."""

        async def take() -> None:
            async for part in request.stream():
                receiver.write(part)

        assert self._pool is not None
        try:
            await asyncio.wait_for(take(), _FILE_S)
            return await self._pool.answer(lambda: self._api.received(receiver, request.method, path))
        except asyncio.TimeoutError:
            return _closing(refusal(408, f"The body has not come within {_FILE_S:g} s."))
        except BodyTooLargeError as error:
            # a client that sends without waiting gets to the answer only if its bytes are read
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(_body(request, _DRAINED), BODY_S)
            return _closing(refusal(413, str(error)))
        except OSError as error:
            return _closing(refusal(507, f"The body could not be written: {error.strerror or error}."))
        finally:
            receiver.close()


def _headers(request: Request) -> dict[str, str]:
    """The headers by their names in lower case. Those that stand there twice are one, as if a comma had joined them."""
    found: dict[str, str] = {}
    for raw_name, raw_value in request.headers.raw:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        joint = "; " if name == "cookie" else ", "
        found[name] = value if name not in found else found[name] + joint + value
    return found


async def _body(request: Request, drained: int) -> bytes | None:
    """The body of a request; None if it is larger than it may be, of which the rest is read up to a bound."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size <= MAX_BODY_BYTES:
            parts.append(part)
        else:
            parts.clear()
        if size > max(drained, MAX_BODY_BYTES):
            break
    return b"".join(parts) if size <= MAX_BODY_BYTES else None


def _closing(answer: Answer) -> Answer:
    """The answer, after which the connection ends: its client has not sent all."""
    headers = (*answer.headers, ("connection", "close"))
    return Answer(answer.status, answer.body, answer.content_type, headers)
