"""A driver of fake jobs that answers by REST in the process of a test, and what a command says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flinkish.rest.access import default_token_file
from flinkish.rest.routes import ROUTES
from flinkish.rest.server import RestServer, Tls, listening
from tests.support.rest_jobs import TOKEN, FakeJobs, api_of


class Served:
    """A driver that has announced itself as drivers do: its address, and the file of its token."""

    def __init__(self, jobs: FakeJobs, certificate: Path | None = None) -> None:
        pytest.importorskip("uvicorn")
        opened = listening("127.0.0.1", [0])
        self.port: int = opened.getsockname()[1]
        self.url = f"{'http' if certificate is None else 'https'}://127.0.0.1:{self.port}"
        self._server = RestServer(api_of(jobs, ROUTES), opened, None if certificate is None else Tls(str(certificate)))
        self._server.start()
        self.token_file = default_token_file(self.port)
        self.token_file.parent.mkdir(parents=True, exist_ok=True)
        self.token_file.write_text(f"{TOKEN}\n")

    def stop(self) -> None:
        """End without a word, as a killed driver does."""
        self._server.stop()


class Told:
    """What a command has said: its exit code, and both streams."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def json(self) -> Any:
        return json.loads(self.out)
