"""What it costs a running job that it is asked by REST: processor time and duration of its epochs, and memory.

    python -m benchmarks.rest_load [--rate 50] [--window 30] [--windows 4]

One job of `benchmarks.keyed_state` on Spark, with epochs of 10,000 records at a fixed interval. In every second window
of time nobody asks; in the others one client asks so often per second what the pages of Flink's Web UI and Prometheus
ask. The two kinds of windows are compared with each other, in the same job. Only Linux (/proc).
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks import contract, runner

#: Seconds until the job has loaded its keys and the JVM has compiled what it needs.
SETTLE_S = 120.0
KEYS = 100_000


class Client:
    """Asks what open pages of Flink's Web UI and a Prometheus ask, one after the other, over one connection."""

    def __init__(self, url: str, token: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
        self._headers = {"Authorization": f"Bearer {token}"}
        job = self.ask("/jobs/overview")["jobs"][0]["jid"]
        self.job = f"/jobs/{job}"
        vertices = [f"{self.job}/vertices/{vertex['id']}" for vertex in self.ask(self.job)["vertices"]]
        of_vertices = [
            vertex + view
            for vertex in vertices
            for view in ("", "/watermarks", "/backpressure", "/subtasks/metrics?get=numRecordsIn,busyTimeMsPerSecond")
        ]
        of_job = ["", "/description", "/checkpoints", "/exceptions", "/config", "/metrics?get=numRestarts,uptime"]
        others = ["/overview", "/jobs/overview", "/taskmanagers", "/metrics"]
        self.paths = cycle([*others, *(self.job + view for view in of_job), *of_vertices])
        self.slowest_s = 0.0

    def ask(self, path: str) -> Any:
        """The answer to a GET; only JSON is parsed."""
        try:
            self._connection.request("GET", path, headers=self._headers)
            answer = self._connection.getresponse()
        except http.client.RemoteDisconnected:
            # the server has closed it while nobody asked
            self._connection.close()
            self._connection.request("GET", path, headers=self._headers)
            answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {body[:200]!r}")
        return json.loads(body) if "json" in answer.headers.get("content-type", "") else None

    def epochs(self) -> list[dict[str, Any]]:
        """The last epochs of the job."""
        found: list[dict[str, Any]] = self.ask(f"{self.job}/description")["job"]["epochs"]
        return found

    def load(self, rate: float, until_s: float) -> int:
        """Ask at a rate, per second; returns how often it was asked."""
        begun_s, asked = time.monotonic(), 0
        while (now_s := time.monotonic()) < until_s:
            due_s = begun_s + asked / rate
            if due_s > now_s:
                time.sleep(due_s - now_s)
                continue
            self.ask(next(self.paths))
            self.slowest_s = max(self.slowest_s, time.monotonic() - now_s)
            asked += 1
        return asked


class Cpu:
    """The processor time of a process and its descendants, those included that end meanwhile."""

    def __init__(self, root: int) -> None:
        self._root = root
        #: (process, when it was started) -> its ticks
        self._ticks: dict[tuple[int, str], int] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._sample, name="cpu", daemon=True).start()

    def _sample(self) -> None:
        while True:
            self.seconds()
            time.sleep(0.5)

    def seconds(self) -> float:
        """User and system time so far."""
        with self._lock:
            for pid in contract.process_tree(self._root):
                fields = contract.stat_fields(Path(f"/proc/{pid}/stat"))
                if fields:
                    self._ticks[pid, fields[19]] = int(fields[11]) + int(fields[12])
            return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int) -> float:
    """The resident memory of a process."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    """Run the job, and print a line for each window and the ratios of the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rest_load", description=__doc__)
    parser.add_argument("--rate", type=float, default=50.0, help="requests per second")
    parser.add_argument("--window", type=float, default=30.0, help="seconds of a window")
    parser.add_argument("--windows", type=int, default=4, help="windows of each kind")
    parser.add_argument("--interval", default="1s", help="of epochs")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="flinkish-rest-load-"))
    command = [sys.executable, "-m", "benchmarks.pipelines.keyed_state_job", str(folder), "--keys", str(KEYS)]
    command += ["--phases", "10000:100000000", "--set", f"flinkish.epoch.interval={options.interval}"]
    command += ["--set", "flinkish.rest.enabled=true", "--set", "rest.bind-port=0"]
    log = folder / "log"
    with log.open("wb") as file:
        job = subprocess.Popen(
            command, cwd=runner.ROOT, stdout=file, stderr=file, env={**os.environ, "FLINKISH_HOME": str(folder)}
        )
    try:
        client = _connected(job, log)
        time.sleep(SETTLE_S)
        _compare(client, job.pid, options)
    finally:
        for pid in contract.process_tree(job.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _connected(job: subprocess.Popen[bytes], log: Path) -> Client:
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s and job.poll() is None:
        found = re.search(r"REST API and Web UI at (\S+) \(token: (\S+)\)", log.read_text(errors="replace"))
        if found is not None:
            try:
                return Client(found[1], Path(found[2]).read_text().strip())
            except (IndexError, KeyError):
                pass
        time.sleep(1)
    raise SystemExit(f"the job does not run:\n{log.read_text(errors='replace')[-3000:]}")


def _compare(client: Client, pid: int, options: argparse.Namespace) -> None:
    figures: dict[str, list[tuple[float, float]]] = {"quiet": [], "asked": []}
    cpu = Cpu(pid)
    for _ in range(options.windows):
        for kind, of_kind in figures.items():
            before_s, first = cpu.seconds(), client.epochs()[-1]["epoch"]
            until_s = time.monotonic() + options.window
            asked = client.load(options.rate, until_s) if kind == "asked" else 0
            time.sleep(max(0.0, until_s - time.monotonic()))
            cpu_s = cpu.seconds() - before_s
            done = [epoch for epoch in client.epochs() if epoch["epoch"] > first]
            duration_ms = statistics.median(epoch["duration_ms"] for epoch in done)
            of_kind.append((cpu_s / len(done), duration_ms))
            print(
                f"{kind}: {asked / options.window:4.1f} requests/s, {len(done)} epochs of {duration_ms:.0f} ms, "
                f"{cpu_s / len(done):.3f} s of CPU each, driver {rss_mib(pid):.1f} MiB",
                flush=True,
            )
    ratios = [
        statistics.median(one[which] for one in figures["asked"])
        / statistics.median(one[which] for one in figures["quiet"])
        for which in (0, 1)
    ]
    print(f"asked / quiet: CPU per epoch {ratios[0]:.3f}, duration of epochs {ratios[1]:.3f}")
    print(f"the slowest answer took {client.slowest_s * 1000:.0f} ms")


if __name__ == "__main__":
    main()
