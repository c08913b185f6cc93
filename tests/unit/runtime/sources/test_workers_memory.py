"""How much memory the workers of a job have in use, from the figures that tasks report of their processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from flinkish.runtime.job.report import TaskReport
from flinkish.runtime.sources.memory_bound import WorkersMemory


def task(worker: str, **figures: int) -> TaskReport:
    return TaskReport(0, 0, worker=worker, process=figures)


@pytest.mark.parametrize(
    ("tasks", "share"),
    [
        ([], 0),
        ([task("a:1")], 0),
        # the workers of a machine together
        ([task("a:1", rss=20, physical=100), task("a:2", rss=30, physical=100)], 0.5),
        # the fullest machine
        ([task("a:1", rss=20, physical=100), task("b:1", rss=30, physical=40)], 0.75),
        # one JVM of two workers
        (
            [
                task("a:1", rss=20, physical=100, jvm=9, jvm_rss=15),
                task("a:2", rss=30, physical=100, jvm=9, jvm_rss=15),
            ],
            0.65,
        ),
        # what a process may have
        ([task("a:1", rss=20, physical=100, limit=50, virtual=45)], 0.9),
        ([task("a:1", rss=20)], 0),
    ],
)
def test_the_share_is_that_of_the_machine_or_process_with_least_left(tasks: list[TaskReport], share: float) -> None:
    assert WorkersMemory().after(tasks) == share


def test_a_process_is_remembered_for_a_while_since_not_each_report_has_its_figures() -> None:
    now_s = [0.0]
    memory = WorkersMemory(lambda: now_s[0])
    memory.after([task("a:1", rss=20, physical=100), task("a:2", rss=30, physical=100)])
    now_s[0] = 50.0
    assert memory.after([task("a:1"), task("a:2", rss=40, physical=100)]) == 0.6
    now_s[0] = 70.0
    assert memory.after([]) == 0.4, "nothing was heard of the first one for a minute"


def test_a_worker_tells_the_limit_of_its_address_space() -> None:
    pytest.importorskip("resource")
    asks = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40));"
        "from flinkish.runtime.process import new_figures; found = new_figures();"
        "print(found['limit'], 0 < found['rss'] < found['virtual'] < found['limit'])"
    )
    answer = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True).stdout.split()
    assert answer == [str(1 << 40), "True"]
