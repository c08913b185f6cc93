"""An HTTP service that knows the countries of users: ``GET /users/ID``. It answers after some milliseconds, does not
know every user (404), and is busy now and then (503)."""

from __future__ import annotations

import asyncio
import json
import threading
import zlib
from types import TracebackType

COUNTRIES = ("Denmark", "France", "India", "Japan", "Kenya", "Peru")

_LATENCY_S = 0.005


def country_of(user: str) -> str | None:
    """The country of a user; None if the service does not know it."""
    number = zlib.crc32(user.encode())
    return None if number % 50 == 0 else COUNTRIES[number % len(COUNTRIES)]


class CountryService:
    """The server. It runs in a thread of this process while it is used as a context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="country service", daemon=True)
        self._port = 0
        self._asked: set[str] = set()

    @property
    def address(self) -> str:
        """The address of the running server, as ``HOST:PORT``."""
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> CountryService:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._answer, "127.0.0.1", 0))
        self._port = server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readline()).decode()
        user = request.split(" ")[1].rpartition("/")[2]
        await asyncio.sleep(_LATENCY_S)
        status, body = self._found(user)
        writer.write(f"HTTP/1.0 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    def _found(self, user: str) -> tuple[str, str]:
        if user not in self._asked and zlib.crc32(user.encode()) % 10 == 3:
            self._asked.add(user)
            return "503 Service Unavailable", ""
        country = country_of(user)
        return ("404 Not Found", "") if country is None else ("200 OK", json.dumps({"country": country}))
