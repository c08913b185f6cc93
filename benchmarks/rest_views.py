"""What the views of the REST API cost for a job with many subtasks: milliseconds of CPU for each answer, with its JSON.

python -m benchmarks.rest_views [SUBTASKS]
"""

from __future__ import annotations

import json
import sys
import time

from flinkish.jobmanager.job.description import JobDescription
from flinkish.rest.route import Text
from flinkish.rest.views import ROUTES
from flinkish.rest.views.archive import archive_of
from tests.support.described_jobs import NOW_MS, ask, wide_job

#: Each view is asked so often, and the fastest time counts.
_TIMES = 5


def main() -> None:
    """Print a line for each view, the most expensive one first."""
    # all in one vertex, which is the most that a view of a vertex can have
    job = wide_job(int(sys.argv[1]) if len(sys.argv) > 1 else 4_000, vertices=1)
    values = {
        "job": job.id,
        "application": job.id,
        "vertex": job.vertices[0].job_vertex_id,
        "subtask": "7",
        "attempt": "1",
        "checkpoint": "1",
        "taskmanager": "host-7-7",
        "file": "flinkish.log",
    }
    found = []
    for route in ROUTES:
        if route.path == "/taskmanagers/{taskmanager}/logs/{file}":
            # an executor has none
            continue
        path = route.path.format(**values)
        for query in ({}, {"get": "numRecordsIn,busyTimeMsPerSecond"}) if path.endswith("/metrics") else ({},):
            found.append((*_cost(job, path, query), route.path + "".join(f"?{name}=..." for name in query)))
    found.sort(reverse=True)
    for cpu_ms, size, path in found:
        print(f"{cpu_ms:8.1f} ms {size:12,} bytes  {path}")
    begun_s = time.process_time()
    size = len(archive_of(job, NOW_MS))
    print(f"{(time.process_time() - begun_s) * 1000:8.1f} ms {size:12,} bytes  the archive of the job")


def _cost(job: JobDescription, path: str, query: dict[str, str]) -> tuple[float, int]:
    costs = []
    for _ in range(_TIMES):
        begun_s = time.process_time()
        answer = ask((job,), path, **query)
        text = answer.text if isinstance(answer, Text) else json.dumps(answer, separators=(",", ":"))
        costs.append((time.process_time() - begun_s) * 1000)
    return min(costs), len(text)


if __name__ == "__main__":
    main()
