"""Session processes (``flinkish jobmanager``), and the drivers that they start."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from tests.support.processes import wait_until
from tests.support.rest_drivers import TIMEOUT_S, fetched

#: A program whose job goes on until it is asked to end.
PROGRAM = """
import sys, time
from flinkish.common import Types, WatermarkStrategy
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.datastream.connectors.number_seq import NumberSequenceSource

def slowly(number):
    time.sleep(0.01)
    return number

env = StreamExecutionEnvironment.get_execution_environment()
source = NumberSequenceSource(1, 10_000_000)
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
numbers.map(slowly, Types.LONG()).filter(lambda number: False).uid("none").print()
print("arguments:", sys.argv[1:], flush=True)
env.execute("uploaded")
"""


def form(name: str, content: bytes) -> tuple[str, bytes]:
    """The type and the body of a form with one file."""
    boundary = uuid.uuid4().hex
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="jarfile"; filename="{name}"\r\n\r\n'
    body = head.encode() + content + f"\r\n--{boundary}--\r\n".encode()
    return f"multipart/form-data; boundary={boundary}", body


class SessionUnderTest:
    """A session process with a folder of its own, which may be started again."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.jobs = folder / "jobs"
        self.home = folder / "home"
        self.home.mkdir(exist_ok=True)
        self.errors = folder / "session-errors"
        own = ("execution.target=minicluster", "flinkish.progress=never", "flinkish.epoch.max-records-per-source=5")
        self._settings = [word for text in (*own, *settings) for word in ("-D", text)]
        self.start()

    def command(self) -> list[str]:
        """The command line of another one for the same folder."""
        words = ["jobmanager", "--port", "0", "--jobs", str(self.jobs), *self._settings]
        return [sys.executable, "-m", "flinkish.cli", *words]

    def start(self) -> None:
        """Start it, for the first time or again."""
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(self.command(), env={**os.environ, "HOME": str(self.home)}, stderr=errors)
        said = r"REST API and Web UI at (\S+) \(token: (\S+)\)"
        found = wait_until(lambda: re.search(said, self.errors.read_text()), TIMEOUT_S, "the line with the address")
        assert found is not None
        self.url, self.token_file = found[1], Path(found[2])
        self.token = self.token_file.read_text().strip()

    def asked(self, path: str, method: str = "GET", body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        return fetched(self.url + path, self.token, method, data)

    def uploaded(self, content: str = PROGRAM, name: str = "prog.py") -> str:
        """The id of a program that was uploaded."""
        kind, body = form(name, content.encode())
        code, answer = fetched(self.url + "/jars/upload", self.token, "POST", body, {"content-type": kind})
        assert (code, answer["status"]) == (200, "success")
        return Path(answer["filename"]).name

    def status(self, job_id: str) -> str | None:
        """The status of a job in the list."""
        lines = self.asked("/jobs/overview")[1]["jobs"]
        return next((line["state"] for line in lines if line["jid"] == job_id), None)

    def wait_for(self, job_id: str, status: str) -> None:
        """Wait until a job has a status."""
        wait_until(lambda: self.status(job_id) == status, TIMEOUT_S, f"the job to be {status}")

    def child(self, name: str) -> Any:
        """What the session process has written down of a driver, by the beginning of the name of its directory."""
        found = json.loads((self.jobs / ".flinkish/session.json").read_text())["children"]
        return next(one for one in found if one["name"].startswith(f"{name}-"))

    def drivers(self) -> list[psutil.Process]:
        """The processes of drivers that own a job directory, and live."""
        found = []
        for owner in self.jobs.glob("*/owner.json"):
            pid = json.loads(owner.read_text())["pid"]
            if psutil.pid_exists(pid):
                found.append(psutil.Process(pid))
        return found

    def close(self) -> None:
        """Kill it, and the drivers below its folder."""
        self.process.kill()
        self.process.wait()
        for driver in self.drivers():
            driver.kill()
