"""Functions over two streams on Spark: over many epochs, with a killed worker, through a savepoint with more subtasks
and in drivers that are killed, one program gives what it gives in one epoch of one process."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from flinkish.checkpoint import maintenance
from flinkish.checkpoint import writer as incremental
from flinkish.runtime.phases import Phase
from flinkish.state import list_states, read_state
from tests.integration.engine import connected_job
from tests.integration.engine.checkpointed_job import of_status, rows_of, stop_with_both, wait_for_all_checkpoints
from tests.integration.engine.collecting import environment
from tests.integration.engine.connected_job import (
    PER_EPOCH,
    RECORDS,
    RULE_COUNT,
    HeldOrders,
    build,
    order,
    payment,
    results,
    rule,
)
from tests.support import faults
from tests.support.processes import start_driver, wait_until

TIMEOUT_S = 300
RESTARTS = {"restart_strategy__type": "fixed-delay", "restart_strategy__fixed_delay__delay": "10 ms"}


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The results of one epoch in the minicluster."""
    folder = tmp_path_factory.mktemp("golden")
    env = environment(execution__target="minicluster", parallelism__default=1)
    build(env, folder)
    env.execute("golden")
    return results(folder)


def test_the_golden_result_is_what_a_plain_loop_gives(golden: dict[str, list[str]]) -> None:
    orders, payments = [order(i) for i in range(RECORDS)], [payment(i) for i in range(RECORDS)]
    sums: dict[Any, list[int]] = {}
    for place, records in enumerate((orders, payments)):
        for account, number, time in records:
            sums.setdefault((account, time // 2_000 * 2_000 + 1_999), [0, 0])[place] += number
    numbers = Counter(record[0] for record in orders + payments)
    totals: Counter[str] = Counter()
    rated: dict[bool, list[Any]] = {True: [], False: []}
    for account, number, time in orders:
        factor = rule(min(time // 1_000, RULE_COUNT - 1))[1]
        totals[account] += factor * number
        rated[factor == 1].append((account, time, totals[account]))
    expected = {
        "matched": [(*key, *both) for key, both in sums.items()],
        "counted": [(account, n) for account, count in numbers.items() for n in range(1, count + 1)],
        "split": [("order", *record) for record in orders] * 2,
        "odd": [record for record in payments if record[1] % 2],
        "in time": [("order", r, True) for r in orders] + [("payment", r, True) for r in payments],
        "rated": rated[False],
        "factor 1": rated[True],
        "consistent": [(record, True) for record in orders],
    }
    assert golden == {name: sorted(map(json.dumps, records)) for name, records in sorted(expected.items())}


@pytest.mark.slow
def test_over_many_epochs_and_with_a_killed_worker_the_results_are_the_same(
    spark: SparkSession, tmp_path: Path, fault_plan: Path, golden: dict[str, list[str]]
) -> None:
    env = environment(tmp_path / "job", restart_strategy__fixed_delay__attempts=3, **RESTARTS)
    build(env, tmp_path, PER_EPOCH)
    faults.plan_fault(fault_plan, Phase.LEVEL_PROCESSED, "kill", epoch=4)
    client = env.execute_async("connected")
    client.get_job_execution_result().result(TIMEOUT_S)
    assert faults.happened(fault_plan)
    assert client.run.last_epoch > 1
    assert results(tmp_path) == golden


@pytest.mark.slow
def test_through_a_savepoint_each_of_more_subtasks_has_a_copy_of_the_broadcast_state(
    spark: SparkSession, tmp_path: Path, golden: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # checkpoints are incremental although there is little state
    monkeypatch.setattr(incremental, "SMALL_STATE_ROWS", 0)
    monkeypatch.setattr(maintenance, "APPENDS_PER_MERGE", 2)
    in_files = {"flinkish__state__inline_size": "0 b"}
    env = environment(
        tmp_path / "first",
        **in_files,
        execution__checkpointing__interval="50 ms",
        execution__checkpointing__savepoint_dir=str(tmp_path / "savepoints"),
        execution__checkpointing__externalized_checkpoint_retention="RETAIN_ON_CANCELLATION",
    )
    orders = HeldOrders(tmp_path, PER_EPOCH)
    build(env, tmp_path, PER_EPOCH, orders)
    client = env.execute_async("first")
    for epoch in range(3):
        orders.let_go(epoch)
        wait_for_all_checkpoints(client, epoch + 1, "COMPLETED")
    # the epoch that runs when the job is stopped ends first
    threading.Timer(1, orders.let_go, range(3, RECORDS // PER_EPOCH)).start()
    checkpoint, savepoint = stop_with_both(client)
    assert [c.incremental for c in of_status(client, "COMPLETED")][1:3] == [True, True]
    assert rows_of(spark, checkpoint) == rows_of(spark, savepoint)
    assert results(tmp_path) != golden

    described = {(s.uid, s.state): s for s in list_states(savepoint) if s.kind == "broadcast"}
    assert described.keys() == {("rated", "rules"), ("consistent", "rules")}
    copies = read_state(savepoint, "rated", "rules")
    assert copies.columns == ["key", "namespace", "map_key", "map_value"]
    by_subtask: dict[tuple[int, str], dict[int, tuple[int, int]]] = {}
    for row in copies.collect():
        by_subtask.setdefault((row["key"], row["namespace"]), {})[row["map_key"]] = tuple(row["map_value"])
    known = len(by_subtask[0, "2"])
    assert 0 < known < RULE_COUNT
    assert by_subtask == {(subtask, "2"): {i: rule(i)[1:] for i in range(known)} for subtask in (0, 1)}

    assert len(subtasks_with_files_of("rules", tmp_path / "first")) == 4, "of two operators, each with two subtasks"

    env = environment(
        tmp_path / "second", execution__state_recovery__path=savepoint, parallelism__default=3, **in_files
    )
    build(env, tmp_path / "second", PER_EPOCH)
    env.execute("second")
    both = results(tmp_path)
    for name, lines in results(tmp_path / "second").items():
        both[name] = sorted([*both.get(name, []), *lines])
    assert both == golden
    assert len(subtasks_with_files_of("rules", tmp_path / "second")) == 6


def subtasks_with_files_of(state: str, job_dir: Path) -> set[Path]:
    """The directories of the subtasks that have files with a state of that name alone."""
    found = set()
    for path in (job_dir / "keyed-state").rglob("*.arrow"):
        with pa.ipc.open_file(str(path)) as reader:
            if json.loads(reader.schema.metadata[b"flinkish.state.names"]) == [state]:
                found.add(path.parent)
    return found


@pytest.mark.slow
def test_killed_and_started_again_the_driver_gives_the_same_results(
    tmp_path: Path, golden: dict[str, list[str]]
) -> None:
    plan = tmp_path / "plan.json"
    script = Path(connected_job.__file__)
    for number, phase in enumerate((Phase.LEVEL_PROCESSED, Phase.EPOCH_PREPARED, None)):
        faults.no_fault(plan)
        if phase is not None:
            faults.plan_fault(plan, phase, "kill", epoch=2 + 3 * number)
        options = json.dumps({"folder": str(tmp_path)})
        log_file = tmp_path / f"{number}.log"
        with start_driver(script, options, log_file=log_file, env=faults.environment(plan)) as driver:
            if phase is None:
                assert "finished" in driver.succeed(TIMEOUT_S)
            else:
                wait_until(lambda: faults.happened(plan), TIMEOUT_S, f"a kill at {phase}")
                driver.kill()
        assert (results(tmp_path) == golden) == (phase is None)
