"""Drivers of the minicluster that answer REST, as processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TIMEOUT_S = 60.0


def fetched(
    url: str,
    token: str | None = None,
    method: str = "GET",
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Any]:
    """Code and JSON of the answer at an address."""
    known = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(url, body, {**known, **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


class Driver:
    """A process that runs `served_program`."""

    def __init__(
        self, folder: Path, *settings: str, jobs: int = 1, home: Path | None = None, directory: Path | None = None
    ) -> None:
        self.directory = directory or folder / "job"
        self.home = home or folder / "home"
        self.home.mkdir(exist_ok=True)
        self.errors = folder / "errors"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.served_program", str(self.directory), *settings],
                env={**os.environ, "HOME": str(self.home), "JOBS": str(jobs)},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "submitted\n", self.errors.read_text()
        found = re.search(r"REST API and Web UI at (\S+) \(token: (\S+)\)", self.errors.read_text())
        assert found is not None
        self.url, self.token_file = found[1], Path(found[2])
        self.token = self.token_file.read_text().strip()

    def asked(self, path: str, method: str = "GET", body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        return fetched(self.url + path, self.token, method, data)

    def running(self) -> list[str]:
        """The ids of the jobs that have done an epoch."""
        jobs = self.asked("/jobs")[1]["jobs"]
        return [job["id"] for job in jobs if job["status"] == "RUNNING"]
