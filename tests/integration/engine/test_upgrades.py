"""A changed program goes on in the directory of the job: what it gives is what a job that was never changed gives."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flinkish.common import JobStatus, Time, Types
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream.window import TumblingEventTimeWindows
from flinkish.errors import FlinkishError, IncompatibleJobError
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.layout import TotalsDescription
from flinkish.launch.driver import DRY_RUN_FORMAT
from flinkish.runtime.phases import Phase
from tests.integration.engine.collecting import Collected, by_field, collecting, environment
from tests.integration.engine.counting_job import build, make_tables
from tests.integration.engine.test_fallback import Ones
from tests.integration.engine.test_faults import (
    FEW,
    KILLED_UPGRADES,
    OF_UPGRADES,
    assert_killed,
    assert_right,
    drive,
)
from tests.support import faults
from tests.support.epoch_reports import execute_observed, reports_of
from tests.support.processes import wait_until

TIMEOUT_S = 120
PER_EPOCH, KEYS = 20, 7
IGNORE = {"execution__state_recovery__ignore_unclaimed_state": True}


@dataclass(frozen=True)
class Program:
    """Sums per key, and windows of ten records; ``evens``: an operator more, which counts even and odd records."""

    folder: Path
    collected: Collected
    evens: bool = False
    uid: str | None = "sums"
    sink: str = "sums sink"

    def start(self, count: int | None = None, **more: Any) -> Any:
        env = environment(self.folder / "job", **more)
        source = DataGeneratorSource(lambda i: (i % KEYS, i * 1000), count, records_per_epoch=PER_EPOCH, splits=2)
        numbers = env.from_source(source, by_field(1), "numbers").uid("numbers")
        sums = numbers.map(Ones()).uid("ones").key_by(lambda e: e[0]).sum(1)
        sums = sums if self.uid is None else sums.uid(self.uid)
        sums.sink_to(self.collected.sink("sums")).uid(self.sink)
        windows = numbers.map(lambda e: (e[1] // 1000, 1)).uid("indices").key_by(lambda e: 0)
        tens = windows.window(TumblingEventTimeWindows.of(Time.seconds(10))).reduce(lambda a, b: (a[0], a[1] + b[1]))
        tens.uid("tens").sink_to(self.collected.sink("tens")).uid("tens sink")
        if self.evens:
            even = numbers.map(lambda e: (e[1] // 1000 % 2, 1), Types.TUPLE([Types.LONG(), Types.LONG()]))
            even.key_by(lambda e: e[0]).sum(1).uid("evens").sink_to(self.collected.sink("evens")).uid("evens sink")
        return execute_observed(env, "numbers")

    def runs(self, epochs: int, **more: Any) -> list[int]:
        """Let the job run for so many epochs, as before a redeployment; the numbers of its epochs."""
        client = self.start(**more)
        wait_until(lambda: len(reports_of(client.run)) >= epochs or client.run.result.done(), TIMEOUT_S, "epochs")
        client.run.request_stop(JobStatus.SUSPENDED, "a signal")
        client.get_job_execution_result().result(TIMEOUT_S)
        return [report.epoch for report in reports_of(client.run)]


def results(count: int) -> tuple[Counter[Any], Counter[Any]]:
    """What so many records give."""
    sums = Counter((index % KEYS, index // KEYS + 1) for index in range(count))
    return sums, Counter((begin, min(10, count - begin)) for begin in range(0, count, 10))


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a job, but for those that count its starts and tell of its driver."""
    names = (path for path in folder.rglob("*") if path.is_file())
    found = {str(path.relative_to(folder)): path.read_bytes() for path in names}
    return {
        name: data
        for name, data in found.items()
        if not name.startswith(("fencing/", "owner.json", "attempts.json", ".owner")) and ".crc" not in name
    }


def dry_run(capsys: pytest.CaptureFixture[str], folder: Path, program: Program, **more: Any) -> tuple[str, int]:
    """What a start would do, and the exit code."""
    before = contents(folder / "job")
    with pytest.raises(SystemExit) as ended:
        program.start(execution__state_recovery__dry_run=True, **more)
    assert contents(folder / "job") == before, "nothing is written"
    found = json.loads(capsys.readouterr().out)
    states = {(one["uid"], one["state"]): one["status"] for one in found["states"]}
    assert states[("numbers", "(position)")] == ("new" if found["outcome"] == "begins" else "restored")
    return found["outcome"], int(str(ended.value.code))


def test_a_job_is_upgraded_and_rescaled_again_and_again_and_gives_what_one_gives_that_never_was(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DRY_RUN_FORMAT, "json")
    with collecting() as collected:
        first = Program(tmp_path, collected)
        assert dry_run(capsys, tmp_path, first) == ("begins", 0)
        epochs = first.runs(2)
        job_id = JobDirectory(str(tmp_path / "job")).job_id()
        epochs += first.runs(2, parallelism__default=3)
        epochs += first.runs(1, parallelism__default=2, flinkish__spark__partitions=1)
        more = replace(first, evens=True)
        epochs += more.runs(2, pipeline__max_parallelism=8)
        assert dry_run(capsys, tmp_path, first, pipeline__max_parallelism=8) == ("upgrades", 1)
        assert dry_run(capsys, tmp_path, first, pipeline__max_parallelism=8, **IGNORE) == ("upgrades", 0)
        assert dry_run(capsys, tmp_path, more, pipeline__max_parallelism=8) == ("goes_on", 0)
        before = contents(tmp_path / "job")
        with pytest.raises(IncompatibleJobError) as refused:
            first.start(pipeline__max_parallelism=8)
        assert "operator 'evens' is gone" in refused.value.what and "evens" in refused.value.details
        after = contents(tmp_path / "job")
        deleted = {name.partition("/")[0] for name in before.keys() - after.keys()}
        assert after.items() <= before.items() and deleted <= {"spark-6", "restore-epoch-6"}, (
            "but for the query before, which nobody needs"
        )
        epochs += more.runs(1, pipeline__max_parallelism=8)
        renamed = replace(first, sink="sums of another name")
        last = max(epochs)
        count = (last + 3) * PER_EPOCH
        client = renamed.start(count, pipeline__max_parallelism=8, **IGNORE)
        client.get_job_execution_result().result(TIMEOUT_S)
        assert (Counter(collected.rows["sums"]), Counter(collected.rows["tens"])) == results(count)
        epochs += [report.epoch for report in reports_of(client.run)]
    assert len(set(epochs)) == len(epochs) and sorted(epochs) == epochs, "no epoch twice"
    assert client.get_accumulators().result(TIMEOUT_S) == {"records": count}
    directory = JobDirectory(str(tmp_path / "job"))
    assert directory.job_id() == job_id
    evens = Counter(collected.rows["evens"])
    assert evens and max(evens.values()) == 1, "the operator that came and went has counted each record once"


@pytest.mark.nightly
def test_before_a_changed_program_has_committed_an_epoch_it_may_be_changed_again_or_back(
    spark: SparkSession, tmp_path: Path, fault_plan: Path
) -> None:
    with collecting() as collected:
        first = Program(tmp_path, collected)
        changes = [{"parallelism__default": 3}, {"pipeline__max_parallelism": 8}, {}]
        # before there is any epoch at all, and behind some of them
        for epochs in (0, 2):
            if epochs:
                first.runs(epochs)
            for change in changes:
                faults.plan_fault(fault_plan, Phase.PLANNED, "raise")
                with pytest.raises(FlinkishError, match="injected at planned"):
                    first.start(**change).get_job_execution_result().result(TIMEOUT_S)
            faults.no_fault(fault_plan)
        count = 8 * PER_EPOCH
        client = first.start(count, parallelism__default=3)
        client.get_job_execution_result().result(TIMEOUT_S)
        assert (Counter(collected.rows["sums"]), Counter(collected.rows["tens"])) == results(count)
    names = {path.name for path in (tmp_path / "job").iterdir() if path.name.startswith(("spark", "keyed-state"))}
    client = first.start(count, parallelism__default=3)
    client.get_job_execution_result().result(TIMEOUT_S)
    left = {path.name for path in (tmp_path / "job").iterdir() if path.name.startswith(("spark", "keyed-state"))}
    assert len(left) <= 2 < len(names), "the next start has deleted the earlier queries"


def test_what_was_prepared_is_committed_before_a_changed_program_goes_on_whichever_step_fails(
    spark: SparkSession, tmp_path: Path, fault_plan: Path
) -> None:
    make_tables(tmp_path)
    faults.plan_fault(fault_plan, Phase.EPOCH_PREPARED, "raise", epoch=1)
    with pytest.raises(FlinkishError, match="injected at epoch prepared"):
        build(tmp_path, records=FEW).execute("counting")
    for phase in (Phase.SINK_COMMITTED, *(case.phase for case in OF_UPGRADES)):
        assert JobDirectory(str(tmp_path / "job")).query_location().first_epoch == 0, "it is still the job that it was"
        faults.plan_fault(fault_plan, phase, "raise")
        with pytest.raises(Exception, match=f"injected at {phase.value}"):
            build(tmp_path, records=FEW, parallelism__default=3).execute("counting")
    assert JobDirectory(str(tmp_path / "job")).query_location().first_epoch == 2, "it is the changed one"
    faults.no_fault(fault_plan)
    build(tmp_path, records=FEW, parallelism__default=3).execute("counting")
    assert_right(tmp_path, FEW)
    totals = JobDirectory(str(tmp_path / "job")).read(TotalsDescription)
    assert totals is not None and totals.records_in == FEW, "the epoch that was committed first counts, and once"


@pytest.mark.slow
def test_a_driver_that_is_killed_at_each_step_of_an_upgrade_leaves_the_old_job_or_the_new_one(
    spark: SparkSession, tmp_path: Path, fault_plan: Path
) -> None:
    make_tables(tmp_path)
    upgraded = {"settings": {"parallelism__default": 3}}
    for number, case in enumerate(KILLED_UPGRADES):
        # the program as it was goes on as long as it can, and leaves a prepared epoch
        faults.plan_fault(fault_plan, Phase.EPOCH_PREPARED, "kill", epoch=number + 1)
        assert_killed(drive(tmp_path), fault_plan)
        faults.plan_fault(fault_plan, case.phase, case.how)
        assert_killed(drive(tmp_path, **upgraded), fault_plan)
    faults.no_fault(fault_plan)
    with drive(tmp_path, **upgraded) as driver:
        driver.succeed(TIMEOUT_S)
    assert_right(tmp_path)


@pytest.mark.nightly
def test_a_program_that_cannot_take_its_state_over_is_refused_and_the_one_before_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    with collecting() as collected:
        first = Program(tmp_path, collected)
        last = max(first.runs(2))
        before = contents(tmp_path / "job")
        for program, more, said in (
            (replace(first, uid=None), {}, "stateful operators of the program have no uid"),
            (replace(first, uid="renamed"), {}, "operators that the program does not have: sums"),
            (first, {"parallelism__default": 3, "execution__state_recovery__path": "/nowhere"}, "has begun without"),
        ):
            with pytest.raises(FlinkishError, match=said):
                program.start(**more)
            assert contents(tmp_path / "job") == before
        count = (last + 2) * PER_EPOCH
        first.start(count).get_job_execution_result().result(TIMEOUT_S)
        assert (Counter(collected.rows["sums"]), Counter(collected.rows["tens"])) == results(count)
