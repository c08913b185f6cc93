"""Every operator in one program: plain, over several epochs, killed and restarted. One golden result."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest

import flinkish.runtime.operators
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.graph.rewrites import apply_runtime_mode
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.job.deployment import JobDescriptor, JobSettings
from flinkish.runtime.job.operator import StreamOperator
from flinkish.runtime.operators.user_function_operator import UserFunctionOperator
from flinkish.runtime.phases import ManualClock, Phase, set_hook
from flinkish.testing import TestingSink
from tests.support import every_operator
from tests.support.every_operator import PARALLELISM, build, golden, in_order

from .programs import environment
from .test_failures import PHASES, Killed

#: what others derive from: no program has them
BASES = {UserFunctionOperator}


def program(batch: bool = False) -> tuple[JobDescriptor, dict[str, TestingSink]]:
    env = environment(PARALLELISM, 8)
    sinks: dict[str, TestingSink] = {}
    build(env, lambda name: sinks.setdefault(name, TestingSink()))
    graph = env.get_stream_graph()
    apply_runtime_mode(graph, "BATCH" if batch else "STREAMING")
    return JobGraphGenerator(graph, JobSettings(), True).generate("job", "every operator"), sinks


def results(sinks: dict[str, TestingSink]) -> every_operator.Result:
    return in_order({name: sink.values for name, sink in sinks.items()})


def operators_of(job: JobDescriptor) -> set[type[StreamOperator]]:
    return {type(operator.factory.create()) for vertex in job.vertices for operator in vertex.operators}


def all_operators() -> set[type[StreamOperator]]:
    """The classes of operators in the package, each in the module that defines it."""
    package = flinkish.runtime.operators
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
    found: set[type[StreamOperator]] = set()
    pending: list[type[StreamOperator]] = [StreamOperator]
    while pending:
        classes = pending.pop().__subclasses__()
        found.update(classes)
        pending += classes
    return {cls for cls in found if cls.__module__.startswith(package.__name__)} - BASES


def test_each_operator_is_in_the_program() -> None:
    used = operators_of(program()[0]) | operators_of(program(batch=True)[0])
    assert {cls.__name__ for cls in all_operators() - used} == set()


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize(
    ("per_epoch", "restart_every"),
    [
        (1_000_000, None),
        (37, None),
        (37, 1),
        *(pytest.param(*way, marks=pytest.mark.nightly) for way in [(1_000_000, 1), (10, None), (10, 1)]),
    ],
)
def test_the_result_is_golden_over_any_number_of_epochs(per_epoch: int, restart_every: int | None, batch: bool) -> None:
    job, sinks = program(batch)
    store, clock, epochs = StateStore(), ManualClock(), 0
    cluster = MiniCluster(job, clock, store, per_epoch)
    while not store.finished:
        if restart_every:
            cluster.dispose()
            cluster = MiniCluster(job, clock, store, per_epoch)
        cluster.run_epoch()
        epochs += 1
        assert epochs < 1_000
    assert results(sinks) == golden(batch)
    assert (epochs > 5) is (per_epoch < 100)


#: Behind these, state has changed in memory, in files, and for good.
CHANGING = (Phase.LEVEL_PROCESSED, Phase.STATE_WRITTEN, Phase.METADATA_COMMITTED)


@pytest.mark.parametrize("files", [pytest.param(False, marks=pytest.mark.nightly), True])
@pytest.mark.parametrize(
    "phase", [pytest.param(phase, marks=() if phase in CHANGING else pytest.mark.nightly) for phase in PHASES]
)
def test_the_result_is_golden_when_the_job_is_killed_in_the_middle_and_goes_on(
    phase: Any, files: bool, tmp_path: Any
) -> None:
    job, sinks = program()
    store, clock = StateStore(keyed_state=str(tmp_path) if files else ""), ManualClock()
    cluster = MiniCluster(job, clock, store, 40)
    cluster.run(3)

    def kill(at: Any, details: Any) -> None:
        if at is phase:
            set_hook(None)
            raise Killed

    set_hook(kill)
    with pytest.raises(Killed):
        cluster.run_epoch()
    MiniCluster(job, clock, store, 40).run()
    assert results(sinks) == golden()
