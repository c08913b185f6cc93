"""The metrics of all drivers in Prometheus' text format, as one scrape: a driver that was started by the session
process listens where nobody else knows.

Rule: the format wants all samples of a name together, and each set of labels once; its lines end with a line feed and
with nothing else that Python takes for the end of a line. What drivers tell of themselves as
JobManagers is left out: to who scrapes, the session process is the JobManager.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping

from flinkish.rest.route import Text
from flinkish.session.drivers import Driver, DriverError

#: Seconds that a scrape waits for drivers.
SCRAPE_S = 5.0
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_OF_JOBMANAGER, _OF_JOBS = "flink_jobmanager_", "flink_jobmanager_job_"


def scrape(drivers: Iterable[Driver], own: Mapping[str, int], host: str) -> Text:
    """The metrics of all drivers that answer in time, and those of the session process (name -> value)."""
    texts: dict[str, str] = {}

    def ask(driver: Driver) -> None:
        try:
            answer = driver.forward("GET", "/metrics", "", {}, b"")
        except DriverError:
            return
        if answer.status == 200:
            texts[driver.url] = answer.body.decode("utf-8", "replace")

    threads = [threading.Thread(target=ask, args=(driver,), daemon=True) for driver in drivers]
    for thread in threads:
        thread.start()
    deadline_s = time.monotonic() + SCRAPE_S
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
    lines = [f'{_OF_JOBMANAGER}{name}{{host="{host}"}} {value}.0' for name, value in own.items()]
    in_time = dict(texts)
    return Text("\n".join([*lines, merged(in_time[url] for url in sorted(in_time))]), _CONTENT_TYPE)


def merged(texts: Iterable[str]) -> str:
    """The metrics of several drivers as one text."""
    #: name -> its lines, by what makes each one the only one of its kind
    found: dict[str, dict[str, str]] = {}
    for text in texts:
        for line in text.split("\n"):
            if line.startswith("# "):
                kind, (name, *_) = line[:6], (*line.split(" ")[2:3], "")
            else:
                kind = line.rpartition(" ")[0]
                name = kind.partition("{")[0]
            if name and (name.startswith(_OF_JOBS) or not name.startswith(_OF_JOBMANAGER)):
                found.setdefault(name, {}).setdefault(kind, line)
    return "".join(f"{line}\n" for lines in found.values() for line in lines.values())
