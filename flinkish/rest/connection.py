"""A connection of the HTTP server: uvicorn's, with bounds that it lacks. Imported only where uvicorn is installed."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """A connection that answers malformed requests as the API does, and that ends when its client takes too long."""

    #: where everything is logged; uvicorn's own loggers belong to the program
    quiet: ClassVar[Any] = logging.getLogger("flinkish.RestServerEndpoint")
    #: the most connections that are kept
    most: ClassVar[int] = 600

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = self.quiet
        self.access_log = False
        #: what the client is waited for, and since when, in seconds of the loop's clock
        self._phase: tuple[str, int] = ("", 0)
        self._since_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what the client has sent. What cannot be worked with ends the connection."""
        try:
            super().data_received(data)
        except Exception as error:
            self.quiet.debug("a connection is ended: %s", error)
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, if no answer has begun yet, and end the connection."""
        with suppress(h11.LocalProtocolError):
            body = json.dumps({"errors": [msg]}).encode()
            headers = [
                (b"content-type", b"application/json; charset=UTF-8"),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            head = self.conn.send(h11.Response(status_code=400, headers=headers, reason=b"Bad Request"))
            self.transport.write((head or b"") + (self.conn.send(h11.Data(data=body)) or b""))
            self.transport.write(self.conn.send(h11.EndOfMessage()) or b"")
        self.transport.close()

    def end_if_late(self, now_s: float, head_s: float, request_s: float, closing_s: float) -> None:
        """End the connection if its client has been waited for too long. To be called again and again.

        Args:
            now_s: the time of the loop's clock.
            head_s: how long the head of a request may take.
            request_s: how long a request may take, with its answer.
            closing_s: how long the client may take to read the last answer.
        """
        if self.transport.is_closing():
            phase, limit_s = ("closing", 0), closing_s
        elif self.cycle is not None and not self.cycle.response_complete:
            phase, limit_s = ("request", id(self.cycle)), request_s
        else:
            phase, limit_s = ("head", id(self.cycle)), head_s
        if phase != self._phase:
            self._phase, self._since_s = phase, now_s
        elif now_s - self._since_s >= limit_s:
            self.transport.abort()
