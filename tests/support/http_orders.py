"""A real HTTP server with a paged API of orders that never gives the same answer twice."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse


@dataclass
class OrderServer:
    """``GET /orders?after=<id>``: at most ten orders behind that one, fewer now and then. The amount of an order is how
    many answers there were before, so an order that is asked for again has another amount."""

    count: int
    url: str = ""
    #: id of the last order before each answer, in order
    asked: list[int] = field(default_factory=list)
    #: order -> its amounts in all answers
    amounts: dict[int, list[float]] = field(default_factory=dict)

    def answer(self, after: int) -> list[dict[str, Any]]:
        self.asked.append(after)
        amount = float(len(self.asked))
        ids = range(after + 1, min(after + 10 - len(self.asked) % 4, self.count) + 1)
        for number in ids:
            self.amounts.setdefault(number, []).append(amount)
        return [{"id": number, "amount": amount} for number in ids]


@contextmanager
def order_server(count: int) -> Iterator[OrderServer]:
    """A server on a port of its own, for as long as the block lasts."""
    orders = OrderServer(count)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            after = int(parse_qs(urlparse(self.path).query)["after"][0])
            body = json.dumps(orders.answer(after)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Keep the output of the tests clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    orders.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield orders
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
