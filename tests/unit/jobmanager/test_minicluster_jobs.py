"""Jobs of the minicluster are kept as on Spark: savepoints and restores, a job directory from which a process that was
killed goes on, checkpoints, and restarts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flinkish.checkpoint.manifest import Savepoint
from flinkish.common import JobExecutionResult, JobStatus, RestartStrategies, Types, WatermarkStrategy
from flinkish.common.accumulators import LongCounter
from flinkish.common.serialization import Encoder
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from flinkish.datastream.connectors.file_system import FileSink
from flinkish.datastream.state import MapStateDescriptor, ValueStateDescriptor
from flinkish.errors import (
    CheckpointError,
    ConfigurationError,
    CorruptStateError,
    FencedError,
    IncompatibleJobError,
    OperationError,
    SavepointError,
    UserCodeError,
)
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobmanager.client import RunClient
from flinkish.jobmanager.requests import ask
from flinkish.runtime.phases import Phase, hooked
from flinkish.testing import SimulatedCrash
from tests.support.processes import wait_until
from tests.support.programs import job_of, new_environment

TIMEOUT_S = 30
RECORDS = 60
PLAIN = Counter(
    f"k{key} {total} {count}"
    for key in range(5)
    for total, count in [(sum(range(key, last + 1, 5)), (last - key) // 5 + 1) for last in range(key, RECORDS, 5)]
)


class Gate:
    """Holds the job up at a number until the test lets it go on, or lets it fail there."""

    at: int | None = None
    failures: list[int] = []
    reached = threading.Event()
    go = threading.Event()

    @classmethod
    def close_at(cls, number: int | None) -> None:
        cls.at, cls.failures = number, []
        cls.reached.clear()
        cls.go.clear()


@pytest.fixture(autouse=True)
def _open_gate() -> Iterator[None]:
    Gate.close_at(None)
    yield
    Gate.go.set()


class Totals(KeyedProcessFunction):
    """The sum per key, in one state, and the number of records, in another one and in an accumulator."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))
        self._counts = runtime_context.get_map_state(MapStateDescriptor("counts", Types.STRING(), Types.LONG()))
        self._seen = LongCounter()
        runtime_context.add_accumulator("seen", self._seen)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        key, number = value
        if number == Gate.at:
            Gate.reached.set()
            assert Gate.go.wait(TIMEOUT_S)
        if number in Gate.failures:
            Gate.failures.remove(number)
            raise OSError(f"the server is away at {number}")
        self._seen.add(1)
        self._sum.update((self._sum.value() or 0) + number)
        self._counts.put("all", (self._counts.get("all") or 0) + 1)
        yield f"{key} {self._sum.value()} {self._counts.get('all')}"


def event(index: int) -> tuple[str, int]:
    return f"k{index % 5}", index


def environment(folder: Path, uid: str = "totals", parallelism: int = 1, **settings: Any) -> StreamExecutionEnvironment:
    """A program that writes the totals to files, in epochs of ten records."""
    texts = {key: str(value) for key, value in settings.items()}
    env = new_environment(parallelism, pipeline__max_parallelism="16", **texts)
    source = DataGeneratorSource(event, RECORDS, records_per_epoch=10)
    events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid("events")
    totals = events.key_by(lambda one: one[0]).process(Totals(), Types.STRING()).uid(uid)
    sink = FileSink.for_row_format(str(folder / "out"), Encoder.simple_string_encoder()).build()
    totals.sink_to(sink).uid("out")
    return env


def kept(folder: Path, **settings: Any) -> StreamExecutionEnvironment:
    """The same with a job directory."""
    return environment(folder, **{"flinkish__job__dir": folder / "job", **settings})


def written(folder: Path) -> Counter[str]:
    files = [file for file in (folder / "out").rglob("*") if file.is_file() and not file.name.startswith(".")]
    return Counter(line for file in files for line in file.read_text().splitlines())


def at_gate(env: StreamExecutionEnvironment, number: int, name: str = "totals") -> RunClient:
    """Start the job and wait until it is held up at a number."""
    Gate.close_at(number)
    client = env.execute_async(name)
    assert isinstance(client, RunClient)
    assert Gate.reached.wait(TIMEOUT_S)
    return client


def goes_on_to(number: int) -> None:
    """Let the job that is held up go on, and hold it up at another number."""
    first, Gate.at, Gate.go = Gate.go, number, threading.Event()
    Gate.reached.clear()
    first.set()


def goes_on_until(done: Callable[[], bool], numbers: tuple[int, ...] = (35, 45, 55)) -> None:
    """Let the job that is held up go on, epoch by epoch, until something is done between two of them; it is held up
    again later."""
    for number in numbers:
        if not done():
            goes_on_to(number)
            wait_until(lambda: done() or Gate.reached.is_set(), TIMEOUT_S, "the operation")
    wait_until(done, TIMEOUT_S, "the operation")


def let_go(client: RunClient, folder: Path) -> None:
    """The job that is held up goes on to its end, and has written each record once."""
    Gate.go.set()
    client.get_job_execution_result().result(TIMEOUT_S)
    assert written(folder) == PLAIN


def interrupted_at(phase: Phase, epoch: int, folder: Path, **settings: Any) -> None:
    """The process ends there, as far as the job directory knows."""
    with hooked(crash_at(phase, epoch)), pytest.raises(SimulatedCrash):
        kept(folder, restart_strategy__type="none", **settings).execute("totals")


def goes_on(folder: Path, **settings: Any) -> JobExecutionResult:
    """The program is started in its directory, and has written each record once."""
    result = kept(folder, **settings).execute("totals")
    assert written(folder) == PLAIN
    return result


def stopped_half_way(folder: Path) -> str:
    client = at_gate(environment(folder), 25)
    stop = client.stop_with_savepoint(False, str(folder / "savepoints"))
    Gate.go.set()
    path = stop.result(TIMEOUT_S)
    assert client.get_job_status().result() is JobStatus.FINISHED
    assert sum(written(folder).values()) == 30
    return path


def crash_at(phase: Phase, epoch: int) -> Callable[[Phase, dict[str, Any]], None]:
    def hook(passed: Phase, details: dict[str, Any]) -> None:
        if passed is phase and details.get("epoch") == epoch:
            raise SimulatedCrash("as the test wants it")

    return hook


# ---------------------------------------------------------------------------------------------------- savepoints


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_that_was_stopped_with_a_savepoint_goes_on_from_it_at_any_parallelism(
    parallelism: int, tmp_path: Path
) -> None:
    path = stopped_half_way(tmp_path)
    environment(tmp_path, parallelism=parallelism, execution__state_recovery__path=path).execute("again")
    assert written(tmp_path) == PLAIN


def test_a_savepoint_is_taken_while_the_job_goes_on(tmp_path: Path) -> None:
    client = at_gate(environment(tmp_path), 25)
    taken = client.trigger_savepoint(str(tmp_path / "savepoints"))
    goes_on_until(taken.done)
    let_go(client, tmp_path)
    manifest = Savepoint.open(taken.result()).manifest
    assert manifest.epoch is not None and manifest.epoch >= 2
    assert manifest.contents is not None
    assert {(state.uid, state.state, state.kind, state.rows) for state in manifest.contents.states} == {
        ("totals", "sum", "value", 5),
        ("totals", "counts", "map", 5),
    }
    assert {(state.name, state.value_type) for state in manifest.states} == {("sum", "BIGINT"), ("counts", "BIGINT")}


def test_a_job_whose_savepoint_cannot_be_written_is_not_stopped(tmp_path: Path) -> None:
    client = at_gate(environment(tmp_path), 25)
    (tmp_path / "file").write_text("")
    with pytest.raises(SavepointError, match="cannot write a savepoint"):
        client.stop_with_savepoint(False, str(tmp_path / "file")).result(TIMEOUT_S)
    with pytest.raises(OperationError, match="the minicluster cannot drain a job"):
        client.stop_with_savepoint(True, str(tmp_path / "savepoints")).result(TIMEOUT_S)
    let_go(client, tmp_path)


def test_a_job_whose_savepoint_fails_while_it_is_written_goes_on(tmp_path: Path) -> None:
    client = at_gate(environment(tmp_path), 25)
    with hooked(crash_at(Phase.SAVEPOINT_WRITTEN, 2)):
        stop = client.stop_with_savepoint(False, str(tmp_path / "savepoints"))
        Gate.go.set()
        with pytest.raises(OperationError, match="as the test wants it"):
            stop.result(TIMEOUT_S)
    let_go(client, tmp_path)
    assert list((tmp_path / "savepoints").iterdir()) == []


def overwrite(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("manifest.json", Path.unlink, "is not complete: manifest.json is missing"),
        ("manifest.json", overwrite, "the file .*manifest.json is damaged"),
        ("state/_delta_log/0*.json", Path.unlink, "the log of the savepoint's table is not complete"),
        ("state/_delta_log/0*.json", overwrite, "log of the table of state is damaged|cannot be read"),
        ("state/part-*.parquet", Path.unlink, "the state of the savepoint cannot be read: .* is missing"),
        ("state/part-*.parquet", overwrite, "the state of the savepoint cannot be read"),
    ],
)
def test_a_damaged_savepoint_is_refused(
    file: str, damage: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    path = Path(stopped_half_way(tmp_path))
    damage(next(path.glob(file)))
    with pytest.raises(SavepointError, match=message):
        environment(tmp_path, execution__state_recovery__path=path).execute()
    assert sum(written(tmp_path).values()) == 30, "nothing has run"


def test_a_savepoint_that_is_not_there_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(SavepointError, match="there is no savepoint at /nonexistent; check the path given with -s"):
        kept(tmp_path, execution__state_recovery__path="/nonexistent").execute()
    assert written(tmp_path) == Counter()
    goes_on(tmp_path)


def test_state_that_nobody_claims_is_refused_unless_it_may_be_dropped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stopped_half_way(tmp_path)
    renamed = {"uid": "renamed", "execution__state_recovery__path": path}
    with pytest.raises(SavepointError, match="operators that the program does not have: totals"):
        environment(tmp_path, **renamed).execute()
    with pytest.raises(SystemExit) as end:
        environment(tmp_path, **renamed, execution__state_recovery__dry_run="true").execute()
    assert end.value.code == 1 and "NOT compatible" in capsys.readouterr().out
    environment(tmp_path, **renamed, execution__state_recovery__ignore_unclaimed_state="true").execute()
    assert sum(written(tmp_path).values()) == RECORDS


# ---------------------------------------------------------------------------------------------------- the directory


@pytest.mark.parametrize("in_files", [False, True], ids=["small state", "state in files"])
@pytest.mark.parametrize(
    "phase",
    [
        Phase.PLANNED,
        Phase.LEVEL_PROCESSED,
        Phase.STATE_WRITTEN,
        Phase.EPOCH_PREPARED,
        Phase.COMMIT_BEGUN,
        Phase.SINK_COMMITTED,
        Phase.METADATA_COMMITTED,
        Phase.CLEANED_UP,
    ],
    ids=lambda phase: phase.name,
)
def test_the_same_program_goes_on_in_its_directory_wherever_it_was_interrupted(
    phase: Phase, in_files: bool, tmp_path: Path
) -> None:
    settings = {"flinkish__state__inline_size": "0"} if in_files else {}
    for epoch in (0, 3):
        interrupted_at(phase, epoch, tmp_path, **settings)
    assert goes_on(tmp_path, **settings).get_accumulator_result("seen") == RECORDS


@pytest.mark.parametrize("phase", [Phase.PLANNED, Phase.STATE_WRITTEN, Phase.SINK_COMMITTED], ids=lambda one: one.name)
def test_the_first_epoch_behind_a_savepoint_is_run_by_the_same_command_again(phase: Phase, tmp_path: Path) -> None:
    again = {"execution__state_recovery__path": stopped_half_way(tmp_path)}
    interrupted_at(phase, 0, tmp_path, **again)
    goes_on(tmp_path, **again)


KILLED = """
import os, signal
from pathlib import Path
from flinkish.runtime.phases import Phase, set_hook
from tests.unit.jobmanager import test_minicluster_jobs as program

def kill(phase, details):
    if phase is Phase.SINK_COMMITTED and details.get("epoch") == 2:
        os.kill(os.getpid(), signal.SIGKILL)

set_hook(kill)
program.kept(Path({folder!r}), parallelism=2).execute("totals")
"""


def test_a_process_that_was_killed_in_a_commit_leaves_an_epoch_that_is_committed_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED.format(folder=str(tmp_path))]
    root = str(Path(__file__).parents[3])
    killed = subprocess.run(command, cwd=root, env={**os.environ, "PYTHONPATH": root}, timeout=TIMEOUT_S, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert 0 < sum(written(tmp_path).values()) < RECORDS
    goes_on(tmp_path, parallelism=2)


def test_a_job_that_has_finished_in_its_directory_is_not_run_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        goes_on(tmp_path)
    assert "nothing was run: this job was finished earlier" in capfd.readouterr().err


def test_a_job_that_was_stopped_in_its_directory_goes_on_there_if_that_is_asked_for(tmp_path: Path) -> None:
    client = at_gate(kept(tmp_path), 25)
    stop = client.stop_with_savepoint(False)
    Gate.go.set()
    assert Path(stop.result(TIMEOUT_S)).parent == tmp_path / "job" / "savepoints"
    goes_on(tmp_path, flinkish__job__restart="true")


def test_a_directory_accepts_only_the_program_that_has_state_in_it(tmp_path: Path) -> None:
    path = stopped_half_way(tmp_path / "other")
    interrupted_at(Phase.PLANNED, 3, tmp_path)
    for change, error, message in (
        ({"parallelism": 2}, IncompatibleJobError, "parallelism of 'totals' was 1 and is 2"),
        ({"uid": "renamed"}, IncompatibleJobError, "operator 'totals' is gone"),
        ({"execution__state_recovery__path": path}, SavepointError, "the job in this directory has begun without a"),
    ):
        with pytest.raises(error, match=message):
            kept(tmp_path, **change).execute("totals")
    spark = "has run in the minicluster, so Spark cannot go on with it here"
    with pytest.raises(IncompatibleJobError, match=spark):
        JobDirectory(str(tmp_path / "job")).check_compatible(job_of(kept(tmp_path)), partitions=2)


def test_a_directory_of_spark_and_one_that_is_not_local_are_refused(tmp_path: Path) -> None:
    directory = JobDirectory(str(tmp_path / "job"))
    directory.remember_structure(job_of(kept(tmp_path)), partitions=2)
    with pytest.raises(IncompatibleJobError, match="has run on Spark, so the minicluster cannot go on with it here"):
        kept(tmp_path).execute("totals")
    with pytest.raises(ConfigurationError, match="the minicluster keeps a job on a local file system only"):
        environment(tmp_path, flinkish__job__dir="s3://bucket/job").execute("totals")


def test_a_job_has_one_process_per_directory_which_answers_requests(tmp_path: Path) -> None:
    client = at_gate(kept(tmp_path), 25)
    with pytest.raises(FencedError, match="runs a job in this directory"):
        kept(tmp_path).execute("totals")
    assert ask(str(tmp_path / "job"), "describe", TIMEOUT_S)["status"] == "RUNNING"
    threading.Timer(0.5, Gate.go.set).start()
    path = ask(str(tmp_path / "job"), "stop", TIMEOUT_S)
    client.run.wait()
    assert Savepoint.open(path).manifest.job_name == "totals"


def test_a_process_that_another_one_has_taken_the_job_from_commits_nothing_more(tmp_path: Path) -> None:
    first = at_gate(kept(tmp_path), 25)
    Gate.at = None
    goes_on(tmp_path, flinkish__job__takeover="newest")
    Gate.go.set()
    first.run.wait(TIMEOUT_S)
    assert first.get_job_status().result() is JobStatus.SUSPENDED
    with pytest.raises(FencedError, match="has taken over this job directory"):
        first.get_job_execution_result().result()
    assert written(tmp_path) == PLAIN


def test_a_damaged_file_of_an_epoch_is_named(tmp_path: Path) -> None:
    interrupted_at(Phase.PLANNED, 3, tmp_path)
    (tmp_path / "job" / "minicluster" / "2.json").write_text("{}")
    with pytest.raises(CorruptStateError, match=r"minicluster/2\.json is damaged.*from its last checkpoint"):
        kept(tmp_path).execute("totals")


# ---------------------------------------------------------------------------------------------------- restarts


@pytest.mark.parametrize("with_directory", [False, True])
def test_a_job_that_fails_is_restarted_from_its_last_epoch_and_its_files_have_each_record_once(
    with_directory: bool, tmp_path: Path
) -> None:
    Gate.failures = [14, 33, 33]
    env = (kept if with_directory else environment)(tmp_path)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 1))
    env.execute("totals")
    assert Gate.failures == [] and written(tmp_path) == PLAIN


def test_a_job_that_fails_for_good_goes_on_when_it_is_started_again(tmp_path: Path) -> None:
    Gate.failures = [33, 33]
    env = kept(tmp_path)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
    with pytest.raises(UserCodeError, match="the server is away at 33"):
        env.execute("totals")
    assert sum(written(tmp_path).values()) == 30
    goes_on(tmp_path)


# ---------------------------------------------------------------------------------------------------- checkpoints


def chk(folder: Path) -> list[Path]:
    return sorted((folder / "job" / "checkpoints").glob("chk-*"))


def test_checkpoints_are_taken_retained_and_restored(tmp_path: Path) -> None:
    often = {"execution__checkpointing__interval": "1 ms", "execution__checkpointing__num_retained": "2"}
    client = at_gate(kept(tmp_path, **often), 45)
    wait_until(lambda: len(chk(tmp_path)) == 2, TIMEOUT_S, "two checkpoints")
    newest = chk(tmp_path)[-1]
    described = client.describe().checkpoints
    assert described.latest_completed is not None and described.latest_completed.path == str(newest)
    manifest = Savepoint.open(str(newest)).manifest
    assert manifest.epoch == 3 and manifest.accumulators is not None
    Gate.at = None
    environment(tmp_path / "other", execution__state_recovery__path=newest).execute("from the checkpoint")
    assert sum(written(tmp_path / "other").values()) == 20
    let_go(client, tmp_path)
    assert chk(tmp_path) == [], "a job that has finished needs none"


def test_checkpoints_that_fail_fail_the_job_as_its_settings_say(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    env = kept(
        tmp_path,
        execution__checkpointing__interval="1 ms",
        execution__checkpointing__dir=tmp_path / "file",
        restart_strategy__type="none",
    )
    with pytest.raises(CheckpointError, match="1 checkpoint in a row failed"):
        env.execute("totals")


def test_a_claimed_savepoint_is_deleted_once_the_job_has_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    path = Path(stopped_half_way(tmp_path))
    claimed = {"execution__state_recovery__claim_mode": "CLAIM", "execution__state_recovery__path": path}
    kept(tmp_path, **claimed, execution__checkpointing__interval="1 ms").execute("again")
    assert written(tmp_path) == PLAIN and not path.exists()


def test_settings_that_mean_something_on_spark_only_are_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        environment(tmp_path, flinkish__epoch__timeout="1 min", flinkish__history__enabled="true").execute()
    found = [one.getMessage() for one in caplog.records if "flinkish.epoch.timeout" in one.getMessage()]
    what = "setting flinkish.epoch.timeout, flinkish.history.enabled"
    assert found == [f"{what} has no effect: the minicluster has nothing of the kind"]


def test_a_job_without_a_directory_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    environment(tmp_path).execute()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_no_name_of_a_job_or_an_operator_is_another_line_of_what_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "".join(f"{end}forged " for end in ("\n", "\r", "\u2028", "\x85", "\x0b", "\ud800"))
    settings = {"flinkish.job.dir": str(tmp_path), "flinkish.progress": "always", "restart-strategy.type": "none"}
    env = new_environment(**settings)
    numbers = env.from_source(DataGeneratorSource(lambda index: index, 3), WatermarkStrategy.no_watermarks(), evil)
    numbers.map(lambda number: 1 // number, Types.LONG()).name(evil).print()
    with caplog.at_level("INFO", "flinkish"), pytest.raises(UserCodeError) as failed:
        env.execute(evil)
    told = [record.getMessage() for record in caplog.records] + capsys.readouterr().err.split("\n")
    assert any("forged" in line for line in told)
    assert [line for line in told if len(line.splitlines()) > 1 or "\ud800" in line or line.startswith("forged")] == []
    assert not any(line.startswith("forged") for line in str(failed.value.message).splitlines())
