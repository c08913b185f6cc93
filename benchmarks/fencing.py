"""The cost of owning a job directory: a claim in a JVM that has just started and in a warm one, a check of the fence.

python -m benchmarks.fencing
"""

from __future__ import annotations

import tempfile
import time
import uuid
from pathlib import Path

from flinkish.common import Configuration
from flinkish.jobdir.fencing import Claim, claim
from flinkish.spark.session import get_session

WARM, CHECKS = 10, 10_000


def main() -> None:
    """Print the figures, in ms (the last one in µs)."""
    session = get_session(Configuration(), "fencing")
    with tempfile.TemporaryDirectory(prefix="flinkish-fencing-") as folder:

        def timed(job: str) -> float:
            began = time.perf_counter()
            claim(session, str(Path(folder) / job), Claim.of_this_process(uuid.uuid4().hex, job))
            return (time.perf_counter() - began) * 1000

        print(f"first claim, cold JVM, new table      {timed('a'):8.0f} ms")
        print(f"first claim, warm JVM, new table      {timed('b'):8.0f} ms")
        again = sorted(timed("a") for _ in range(WARM))
        print(f"later claims, warm JVM (median)       {again[WARM // 2]:8.0f} ms")
        fence = claim(session, str(Path(folder) / "a"), Claim.of_this_process(uuid.uuid4().hex, "a"))
        began = time.perf_counter()
        for _ in range(CHECKS):
            fence.check()
        print(f"one look at the fence, local disk     {(time.perf_counter() - began) / CHECKS * 1e6:8.1f} µs")
    session.stop()


if __name__ == "__main__":
    main()
