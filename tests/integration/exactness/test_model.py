"""The model says what the job puts out, in one process, whatever the parallelism and wherever it is interrupted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.minicluster.mini_cluster import MiniCluster
from flinkish.runtime.job.deployment import JobDescriptor, JobSettings
from tests.integration.exactness.events import EPOCHS, LATE, ON_TIME, TOO_LATE
from tests.integration.exactness.job import Program
from tests.integration.exactness.model import ALL, events_of, golden
from tests.integration.exactness.outputs import all_outputs, consumed, make_table
from tests.support.exactness import assert_exact
from tests.support.programs import new_environment


def graph(folder: Path, parallelism: int = 2, max_parallelism: int = 8) -> JobDescriptor:
    env = new_environment(parallelism, pipeline__max_parallelism=str(max_parallelism))
    Program(folder).build(env)
    generator = JobGraphGenerator(env.get_stream_graph(), JobSettings(), env.is_chaining_enabled())
    return generator.generate("job", "exactness")


def test_the_input_has_all_kinds_of_records_and_lives() -> None:
    kinds = Counter(event.kind for event in events_of(ALL))
    assert kinds[ON_TIME] > 2500 and kinds[LATE] > 20 and kinds[TOO_LATE] > 20
    outputs = golden()
    lives: dict[str, set[str]] = {}
    for output in outputs:
        lives.setdefault(output.lane, set()).add(output.life)
    assert all(len(names) >= 3 for lane, names in lives.items() if not lane.startswith("late"))
    assert max(int(o.id.split("#")[1]) for o in outputs if "#" in o.id) >= 3


@pytest.mark.parametrize(("parallelism", "max_parallelism"), [(1, 8), (3, 32)])
def test_the_model_says_what_the_job_puts_out(tmp_path: Path, parallelism: int, max_parallelism: int) -> None:
    make_table(tmp_path)
    reports = MiniCluster(graph(tmp_path, parallelism, max_parallelism)).run()
    assert len(reports) == EPOCHS
    assert_exact(golden(), all_outputs(tmp_path))
    assert consumed(tmp_path) == ALL
