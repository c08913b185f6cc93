"""State as DataFrames: read with types, edited with SQL, made from nothing; damaged or wrong rows are refused."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from flinkish.checkpoint import writer as incremental
from flinkish.checkpoint.manifest import Manifest, Savepoint, TableVersion, write_manifest
from flinkish.common import WatermarkStrategy
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from flinkish.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from flinkish.delta.log import DeltaLog
from flinkish.errors import FlinkishError, ProgramError, SavepointError
from flinkish.runtime.phases import Phase, hooked
from flinkish.runtime.stored.texts import to_text
from flinkish.state import (
    StateStatus,
    compatibility,
    console,
    describe_savepoint,
    list_states,
    read_state,
    write_savepoint,
)
from flinkish.state.contents import difference
from tests.golden.write import unpack
from tests.integration.engine.checkpointed_job import of_status, wait_for_checkpoints
from tests.integration.engine.collecting import Collected, by_field, collecting, environment
from tests.support.processes import wait_until

TIMEOUT_S = 120
KEYS, RECORDS = 6, 180


def event(index: int) -> tuple[str, int, int]:
    """(key, amount, time)"""
    return f"u{index % KEYS}", index, index * 100


class Counter(KeyedProcessFunction):
    """How many, which amounts by their last digit, and the last two."""

    count_type: TypeInformation = Types.LONG()

    def open(self, runtime_context: RuntimeContext) -> None:
        self._n = runtime_context.get_state(ValueStateDescriptor("n", self.count_type))
        self._digits = runtime_context.get_map_state(MapStateDescriptor("digits", Types.STRING(), Types.LONG()))
        self._last = runtime_context.get_list_state(ListStateDescriptor("last", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        key, amount, time_ms = value
        self._n.update((self._n.value() or 0) + 1)
        self._digits.put(str(amount % 10), amount)
        self._last.update([*self._last, amount][-2:])
        ctx.timer_service().register_event_time_timer(time_ms + 1_000_000)
        yield key, self._n.value(), amount


def build(
    env: StreamExecutionEnvironment,
    collected: Collected,
    function: Any = None,
    uid: str = "counter",
    parts: tuple[str, ...] = ("counter", "sums"),
    per_epoch: int = RECORDS,
) -> None:
    source = DataGeneratorSource(event, RECORDS, records_per_epoch=per_epoch)
    events = env.from_source(source, by_field(2), "events").uid("events")
    keyed = events.key_by(lambda e: e[0], Types.STRING())

    def add_counter() -> None:
        counted = keyed.process(function or Counter())
        (counted.uid(uid) if uid else counted).sink_to(collected.sink())

    def add_sums() -> None:
        keyed.sum(1).uid("sums").sink_to(collected.sink("sums"))

    def add_latest() -> None:
        keyed.max(1).uid("latest").sink_to(collected.sink("latest"))

    for part in parts:
        {"counter": add_counter, "sums": add_sums, "latest": add_latest}[part]()


def restoring(folder: Path, path: str, **more: Any) -> StreamExecutionEnvironment:
    return environment(folder / "second", execution__state_recovery__path=path, **more)


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A savepoint of a job whose directory is gone."""
    folder = tmp_path_factory.mktemp("state")
    with collecting() as collected:
        env = environment(folder / "first")
        build(env, collected, per_epoch=18)
        client = env.execute_async("first")
        wait_until(lambda: len(collected.rows["out"]) >= 36, TIMEOUT_S, "results")
        path = client.stop_with_savepoint(False, str(folder / "savepoints")).result(TIMEOUT_S)
        assert len(collected.rows["out"]) < RECORDS
    shutil.rmtree(folder / "first")
    return path


@pytest.fixture
def savepoint(original: str, tmp_path: Path) -> str:
    """A copy, for this test alone."""
    shutil.copytree(original, tmp_path / "copy")
    return str(tmp_path / "copy")


def counts_after(spark: SparkSession, folder: Path, path: str, function: Any = None, **more: Any) -> dict[str, int]:
    """The last count of each key, of a job that goes on from the savepoint."""
    with collecting() as collected:
        env = restoring(folder, path, flinkish__epoch__max_records_per_source=1_000, **more)
        build(env, collected, function)
        env.execute("second")
        return {key: n for key, n, _ in sorted(collected.rows["out"])}


def plain() -> dict[str, int]:
    return {f"u{key}": RECORDS // KEYS for key in range(KEYS)}


def report_of(folder: Path, path: str, function: Any = None, uid: str = "counter", prepare: Any = None) -> Any:
    with collecting() as collected:
        env = environment(folder / "none")
        build(env, collected, function, uid)
        if prepare is not None:
            prepare(env)
        return compatibility(env, path)


def test_states_are_read_with_the_types_that_the_program_declared(spark: SparkSession, original: str) -> None:
    described = {(s.uid, s.state): s for s in list_states(original)}
    n = described["counter", "n"]
    assert (n.kind, n.rows, n.key_type, n.value_type) == ("value", KEYS, "STRING", "BIGINT")
    assert described["counter", "digits"].map_key_type == "STRING"
    values = read_state(original, "counter", "n")
    assert values.dtypes == [("key", "string"), ("namespace", "string"), ("value", "bigint")]
    counts = {row["key"]: row["value"] for row in values.collect()}
    taken = sum(counts.values())
    assert set(counts) == set(plain()) and 0 < taken < RECORDS
    digits = read_state(original, "counter", "digits")
    assert [kind for _, kind in digits.dtypes] == ["string", "string", "string", "bigint"]
    assert digits.where("map_key = cast(map_value % 10 as string)").count() == digits.count() > 0
    last = read_state(original, "counter", "last")
    assert last.dtypes[-1] == ("value", "array<bigint>")
    assert sorted(amount for row in last.collect() for amount in row["value"]) == list(range(taken - 2 * KEYS, taken))
    timers = read_state(original, "counter", next(s for _, s in described if s.startswith("__timers__")))
    assert timers.where("value >= 1000000").count() == taken
    with pytest.raises(SavepointError, match="there is no state 'm' of an operator with the uid 'counter'"):
        read_state(original, "counter", "m")
    with pytest.raises(SavepointError, match="neither a savepoint nor a completed checkpoint"):
        read_state(str(Path(original).parent))


def test_a_job_goes_on_with_what_sql_has_updated_deleted_and_inserted(
    spark: SparkSession, savepoint: str, tmp_path: Path
) -> None:
    so_far = {row["key"]: row["value"] for row in read_state(savepoint, "counter", "n").collect()}
    table = f"delta.`{savepoint}/state`"
    spark.sql(f"UPDATE {table} SET value = '1000' WHERE uid = 'counter' AND state = 'n' AND key = '\"u0\"'")
    spark.sql(f"DELETE FROM {table} WHERE state = 'n' AND key IN ('\"u1\"', '\"u2\"')")
    spark.sql(f"INSERT INTO {table} VALUES ('counter', 'n', 'value', '\"u2\"', NULL, '2000')")
    rest = RECORDS // KEYS - so_far["u3"]
    report = report_of(tmp_path, savepoint)
    assert report.compatible and report.edited
    expected = {**plain(), "u0": 1000 + rest, "u1": rest, "u2": 2000 + rest}
    assert counts_after(spark, tmp_path, savepoint) == expected


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        pytest.param(
            "UPDATE {} SET value = '12x' WHERE state = 'n' AND key = '\"u1\"'",
            "row of key \"u1\": .*'12x' is not a value",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "UPDATE {} SET value = '\"many\"' WHERE state = 'n' AND key = '\"u1\"'",
            'row of key "u1": .*many',
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "INSERT INTO {} VALUES ('counter','digits','map','\"u1\"','null','[1]')",
            "is no entry of a map",
            marks=pytest.mark.slow,
        ),
        ("INSERT INTO {} VALUES ('counter','n','value','\"u1\"',NULL,'5')", 'there are 2 rows .*state n, key "u1"'),
        pytest.param(
            "UPDATE {} SET kind = 'list' WHERE state = 'n'",
            "it is list state, the program declares value state",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_rows_that_were_edited_wrongly_are_named(
    spark: SparkSession, savepoint: str, tmp_path: Path, statement: str, message: str
) -> None:
    spark.sql(statement.format(f"delta.`{savepoint}/state`"))
    env = restoring(tmp_path, savepoint)
    with collecting() as collected:
        build(env, collected)
        with pytest.raises(SavepointError, match=message):
            env.execute("second")
    assert not (tmp_path / "second" / "restored.json").exists()


def data_file(savepoint: str) -> Path:
    return max(Path(savepoint, "state").glob("*.parquet"), key=lambda file: file.stat().st_size)


def log_file(savepoint: str) -> Path:
    return Path(savepoint, "state", "_delta_log", f"{0:020}.json")


def flipped(place: float) -> Callable[[Path], None]:
    def damage(file: Path) -> None:
        data = bytearray(file.read_bytes())
        data[int(len(data) * place)] ^= 0x04
        file.write_bytes(data)
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)

    return damage


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("damage", "which"),
    [
        (flipped(0.1), data_file),
        (flipped(0.35), log_file),
        (truncated, data_file),
        (Path.unlink, log_file),
        (Path.unlink, data_file),
        *(
            pytest.param(damage, which, marks=pytest.mark.slow)
            for damage, which in ((flipped(0.1), log_file), (flipped(0.35), data_file), (truncated, log_file))
        ),
    ],
)
def test_damage_of_the_table_is_never_restored(
    spark: SparkSession, savepoint: str, tmp_path: Path, which: Any, damage: Any
) -> None:
    damage(which(savepoint))
    with pytest.raises(SavepointError, match=str(Path(savepoint))):
        report = report_of(tmp_path, savepoint)
        # a byte that means nothing: the digest of the rows is that of the manifest
        assert report.compatible and not report.edited
        raise SavepointError(savepoint)


class CountFrom(Counter):
    """The count is a pair now."""

    count_type = Types.TUPLE([Types.LONG(), Types.STRING()])

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        count, origin = self._n.value() or (0, "new")
        self._n.update((count + 1, origin))
        yield f"{value[0]} {origin}", count + 1, value[1]


@pytest.mark.nightly
def test_a_value_of_another_type_is_restored_through_a_migration_only(
    spark: SparkSession, savepoint: str, tmp_path: Path
) -> None:
    states = {state.state: state for state in report_of(tmp_path, savepoint, CountFrom()).states}
    assert states["n"].status is StateStatus.INCOMPATIBLE
    assert states["n"].reason.startswith(f"{KEYS} of {KEYS} rows; the row of key")
    assert states["digits"].status is StateStatus.RESTORED and states["digits"].rows > 0

    def broken(env: Any) -> None:
        env.register_state_migration("counter", "n", lambda n: n["x"])

    reason = next(
        s.reason for s in report_of(tmp_path, savepoint, CountFrom(), prepare=broken).states if s.state == "n"
    )
    assert "the migration raised TypeError" in reason and 'key "u' in reason
    with collecting() as collected:
        env = restoring(tmp_path, savepoint)
        env.register_state_migration("counter", "n", lambda n: (n, "old"))
        build(env, collected, CountFrom())
        env.execute("second")
        last = {key: n for key, n, _ in sorted(collected.rows["out"])}
    assert last == {f"{key} old": n for key, n in plain().items()}


class Waiting:
    """A migration that says that it has begun, and waits in one of its tasks until it may go on."""

    def __init__(self, folder: Path) -> None:
        self.begun, self.may_go_on = folder / "begun", folder / "go-on"

    def __call__(self, n: int) -> int:
        with suppress(FileExistsError):
            self.begun.touch(exist_ok=False)
            wait_until(self.may_go_on.exists, TIMEOUT_S, "the end of the other jobs")
        return n


class FailsOnce(Counter):
    """Fails with the first record, if no attempt before has."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        if not self._file.exists():
            self._file.touch()
            raise ConnectionError("the first attempt fails")
        yield from super().process_element(value, ctx)


def test_jobs_start_restore_and_restart_beside_one_that_restores_for_long(
    spark: SparkSession, savepoint: str, tmp_path: Path
) -> None:
    slow = Waiting(tmp_path)

    def run(name: str, function: Counter, migration: Any = None, **more: Any) -> int:
        with collecting() as collected:
            env = environment(tmp_path / name, **more)
            if migration is not None:
                env.register_state_migration("counter", "n", migration)
            build(env, collected, function)
            env.execute(name)
            return len(collected.rows["out"])

    restored = {"execution__state_recovery__path": savepoint}
    restarted = {"restart_strategy__type": "fixed-delay", "restart_strategy__fixed_delay__delay": "10 ms"}
    with ThreadPoolExecutor(1) as pool:
        try:
            slowly = pool.submit(run, "slow", Counter(), slow, **restored)
            wait_until(slow.begun.exists, TIMEOUT_S, "the long restore")
            # with as many partitions as the other one, and with others
            left = run("restored", Counter(), parallelism__default=3, **restored)
            assert run("restarted", FailsOnce(tmp_path / "failed"), **restarted) == RECORDS
            assert not slowly.done() and 0 < left < RECORDS
        finally:
            slow.may_go_on.touch()
        assert slowly.result(TIMEOUT_S) == left


class Refusing(Counter):
    def open(self, runtime_context: RuntimeContext) -> None:
        raise ConnectionError("the server of open() is away")


def test_what_is_new_dropped_or_unknown_is_said_before_a_restore(
    spark: SparkSession, savepoint: str, tmp_path: Path
) -> None:
    report = report_of(tmp_path, savepoint, uid="renamed")
    assert not report.compatible
    assert {(s.uid, s.state) for s in report.of(StateStatus.NEW)} >= {("renamed", "n"), ("renamed", "digits")}
    assert {s.uid for s in report.of(StateStatus.DROPPED)} == {"counter"}
    assert "problem: there is state of operators that the program does not have: counter" in report.text()
    unknown = report_of(tmp_path, savepoint, Refusing())
    assert unknown.compatible
    assert "the server of open() is away" in unknown.of(StateStatus.UNKNOWN)[0].reason
    unnamed = report_of(tmp_path, savepoint, uid="")
    assert "stateful operators of the program have no uid: 'KEYED PROCESS'" in unnamed.text()
    assert "uid(...)" in unnamed.text()


def test_a_dry_run_prints_the_report_and_runs_nothing(
    spark: SparkSession, savepoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for uid, code in (("counter", 0), ("renamed", 1)):
        with collecting() as collected:
            env = restoring(tmp_path, savepoint, execution__state_recovery__dry_run=True)
            build(env, collected, uid=uid)
            with pytest.raises(SystemExit) as ended:
                env.execute("second")
            assert ended.value.code == code
            assert not collected.rows["out"]
        out = capsys.readouterr().out
        assert ("NOT compatible" in out) == bool(code) and f"savepoint {savepoint}" in out
    assert not (tmp_path / "second").exists()


def test_a_savepoint_made_from_dataframes_is_what_a_job_begins_with(spark: SparkSession, tmp_path: Path) -> None:
    counts = spark.createDataFrame(
        [("counter", "n", f"u{key}", 100 * key) for key in range(3)], "uid string, state string, key string, value long"
    )
    digits = spark.sql("SELECT 'counter' uid, 'digits' state, 'map' kind, 'u1' key, map('7', 7L, '8', 8L) value")
    last = spark.sql("SELECT 'counter' uid, 'last' state, 'list' kind, 'u1' key, array(1L, 2L) value")
    path = write_savepoint([counts, digits, last], str(tmp_path / "initial"), states={("counter", "n"): Types.LONG()})
    assert {s.state: s.rows for s in list_states(path)} == {"digits": 2, "last": 1, "n": 3}
    assert {r["map_key"] for r in read_state(path, "counter", "digits").collect()} == {'"7"', '"8"'}
    each = RECORDS // KEYS
    assert counts_after(spark, tmp_path, path) == {**plain(), "u1": 100 + each, "u2": 200 + each}


def test_a_dataframe_that_cannot_be_a_savepoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    schema = "uid string, state string, key string, value long"
    target = str(tmp_path / "initial")
    with pytest.raises(ProgramError, match=r"lacks the columns \['key'\]"):
        write_savepoint(spark.createDataFrame([("a", "n", 1)], "uid string, state string, value long"), target)
    with pytest.raises(SavepointError, match="its value is NULL.*uid a, state n, key k"):
        write_savepoint(spark.createDataFrame([("a", "n", "k", None)], schema), target)
    with pytest.raises(SavepointError, match='there are 2 rows for uid a, state n, key "k"'):
        write_savepoint(spark.createDataFrame([("a", "n", "k", 1), ("a", "n", "k", 2)], schema), target)
    assert not Path(target).exists()
    texts = spark.createDataFrame([("a", "n", '"k"', "{")], "uid string, state string, key string, value string")
    with pytest.raises(SavepointError, match="is not a value"):
        write_savepoint(texts, target, texts=True)


@pytest.mark.slow
def test_a_job_is_restored_from_an_older_version_of_a_table_of_checkpoints(
    spark: SparkSession, savepoint: str, tmp_path: Path
) -> None:
    """As checkpoints lie: one table, its versions, and manifests that name one."""
    manifest = Savepoint.open(savepoint).manifest
    checkpoints = tmp_path / "job" / "checkpoints"
    checkpoints.mkdir(parents=True)
    shutil.move(Path(savepoint) / "state", checkpoints / "state")
    spark.sql(f"UPDATE delta.`{checkpoints}/state` SET value = '0' WHERE state = 'n'")
    for number, version in ((3, 0), (4, 1)):
        told = Manifest(
            manifest.job_id,
            "first",
            manifest.epoch,
            0,
            sources=manifest.sources,
            state=TableVersion("../state", version),
        )
        write_manifest(str(checkpoints / f"chk-{number}"), told)
    assert {row["value"] for row in read_state(str(tmp_path / "job"), "counter", "n").collect()} == {0}
    assert counts_after(spark, tmp_path, str(checkpoints / "chk-3")) == plain()


@pytest.mark.slow
def test_a_moved_and_vacuumed_savepoint_is_restored_by_a_changed_program_on_other_subtasks_and_another_backend(
    spark: SparkSession, savepoint: str, tmp_path: Path
) -> None:
    moved = str(tmp_path / "moved")
    shutil.move(savepoint, moved)
    spark.sql(f"UPDATE delta.`{moved}/state` SET value = value WHERE uid = 'counter'")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        spark.sql(f"VACUUM delta.`{moved}/state` RETAIN 0 HOURS")
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    other: dict[str, Any] = {
        "parallelism__default": 3,
        "pipeline__max_parallelism": 16,
        "state__backend__type": "rocksdb",
        "flinkish__epoch__max_records_per_source": 1_000,
    }
    with collecting() as collected:
        env = restoring(tmp_path, moved, **other)
        build(env, collected, parts=("latest", "sums", "counter"))
        env.execute("changed")
        assert {key: n for key, n, _ in sorted(collected.rows["out"])} == plain()
        totals = {f"u{key}": sum(range(key, RECORDS, KEYS)) for key in range(KEYS)}
        assert {key: total for key, total, _ in sorted(collected.rows["sums"])} == totals
        taken = RECORDS - len(collected.rows["sums"])
        assert len(collected.rows["latest"]) == RECORDS - taken < RECORDS
    with collecting() as collected:
        env = environment(tmp_path / "third", execution__state_recovery__path=moved, **other)
        build(env, collected, parts=("sums",))
        with pytest.raises(SavepointError, match="state of operators that the program does not have: counter"):
            env.execute("less")
        env = environment(
            tmp_path / "third",
            execution__state_recovery__path=moved,
            execution__state_recovery__ignore_unclaimed_state=True,
            **other,
        )
        build(env, collected, parts=("sums",))
        env.execute("less")
        assert {key: total for key, total, _ in sorted(collected.rows["sums"])} == totals


@pytest.mark.nightly
def test_a_directory_that_has_begun_is_not_started_from_another_savepoint(
    spark: SparkSession, savepoint: str, tmp_path: Path
) -> None:
    assert counts_after(spark, tmp_path, savepoint) == plain()
    assert counts_after(spark, tmp_path, savepoint) == {}  # the same again is a restart: nothing is left to do
    env = restoring(tmp_path, savepoint + "-other")
    with collecting() as collected:
        build(env, collected)
        with pytest.raises(SavepointError, match="has begun with the savepoint .*copy and has state of its own"):
            env.execute("second")


@pytest.mark.nightly
def test_a_claimed_savepoint_goes_when_a_checkpoint_has_taken_its_place_which_can_be_restored_in_turn(
    spark: SparkSession, savepoint: str, tmp_path: Path
) -> None:
    def start(collected: Collected, name: str, path: str, mode: str) -> Any:
        env = environment(
            tmp_path / name,
            execution__state_recovery__path=path,
            execution__state_recovery__claim_mode=mode,
            execution__checkpointing__interval="100 ms",
            execution__checkpointing__externalized_checkpoint_retention="RETAIN_ON_CANCELLATION",
        )
        endless = env.from_source(DataGeneratorSource(event, records_per_epoch=18), by_field(2), "events").uid("events")
        keyed = endless.key_by(lambda e: e[0], Types.STRING())
        keyed.process(Counter()).uid("counter").sink_to(collected.sink())
        keyed.sum(1).uid("sums").sink_to(collected.sink("sums"))
        return env.execute_async(name)

    with collecting() as collected:
        client = start(collected, "claiming", savepoint, "CLAIM")
        wait_until(lambda: not Path(savepoint).exists(), TIMEOUT_S, "the savepoint to be deleted")
        client.cancel().result(TIMEOUT_S)
    (retained,) = (path.parent for path in (tmp_path / "claiming" / "checkpoints").glob("chk-*/manifest.json"))
    counts = {row["key"]: row["value"] for row in read_state(str(retained), "counter", "n").collect()}
    with collecting() as collected:
        client = start(collected, "going-on", str(retained), "NO_CLAIM")
        wait_until(lambda: len(collected.rows["out"]) > KEYS, TIMEOUT_S, "results")
        client.cancel().result(TIMEOUT_S)
        first = {key: n for key, n, _ in sorted(collected.rows["out"], reverse=True)}
    assert first == {key: n + 1 for key, n in counts.items()}
    assert retained.exists()


def test_rows_of_a_savepoint_in_which_a_bit_has_changed_are_never_taken_in(
    spark: SparkSession, savepoint: str, tmp_path: Path
) -> None:
    def damage(phase: Phase, details: dict[str, Any]) -> None:
        if phase is Phase.RESTORE_PREPARED:
            for file in (tmp_path / "second").rglob("restore*/*.parquet"):
                # as on an object store, which has no file of checksums beside it
                file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
                buffers = parquet.read_metadata(file).row_group(0).column(3)
                data = bytearray(file.read_bytes())
                data[buffers.data_page_offset + buffers.total_compressed_size - 10] ^= 1
                file.write_bytes(data)

    with hooked(damage), pytest.raises(FlinkishError, match="(?i)checksum|crc"):
        counts_after(spark, tmp_path, savepoint, restart_strategy__type="none")


#: What neither UTF-8 nor a text of digits can hold.
STRANGE: list[Any] = ["half \ud83d", 10**5000, ("\ude00", -(10**5000))]


class Latest(KeyedProcessFunction):
    """Counts the records of each key and keeps the last value."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._latest = runtime_context.get_state(ValueStateDescriptor("latest", Types.PICKLED_BYTE_ARRAY()))
        self._seen = runtime_context.get_map_state(MapStateDescriptor("seen", Types.PICKLED_BYTE_ARRAY(), Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self._latest.update(value[1])
        self._seen.put(value[1], (self._seen.get(value[1]) or 0) + 1)
        yield ctx.get_current_key(), self._latest.value(), sum(self._seen.values())


@pytest.mark.nightly
def test_keys_and_values_that_utf8_cannot_hold_are_saved_read_and_restored(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incremental, "SMALL_STATE_ROWS", 0)

    def program(name: str, collected: Collected, records: int, **more: Any) -> StreamExecutionEnvironment:
        env = environment(
            tmp_path / name, execution__checkpointing__interval="50 ms", flinkish__epoch__interval="100 ms", **more
        )
        source = DataGeneratorSource(lambda i: (STRANGE[i % 3], STRANGE[i // 3 % 3]), records, records_per_epoch=9)
        events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid("events")
        keyed = events.key_by(lambda e: e[0]).process(Latest()).uid("latest")
        keyed.sink_to(collected.sink())
        return env

    with collecting() as collected:
        client = program("first", collected, 1_000_000).execute_async("first")
        taken = wait_for_checkpoints(client, 3)
        path = client.stop_with_savepoint(False, str(tmp_path / "savepoints[1]")).result(TIMEOUT_S)
        assert not of_status(client, "FAILED") and taken[-1].incremental
        before = collected.rows["out"]
    assert {("latest", "latest"), ("latest", "seen")} <= {(found.uid, found.state) for found in list_states(path)}
    texts = read_state(path, "latest", "latest").collect()
    assert sorted(to_text(key) for key in STRANGE) == sorted(row["key"] for row in texts)
    with collecting() as collected:
        program("second", collected, len(before) + 9, execution__state_recovery__path=path).execute("second")
        after = collected.rows["out"]
    counts = {to_text(key): count for key, _, count in sorted(before + after, key=lambda row: row[2])}
    assert len(after) == 9 and counts == dict.fromkeys(map(to_text, STRANGE), len(before) // 3 + 3)


def test_sql_on_a_job_has_its_history_and_its_states_as_views(
    spark: SparkSession, original: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with collecting() as collected:
        env = environment(tmp_path / "job", flinkish__history__enabled="true")
        build(env, collected)
        env.execute("counts")
    capsys.readouterr()
    job = str(tmp_path / "job")
    ends = "SELECT status FROM jobs ORDER BY time_ms DESC, number DESC LIMIT 1"
    assert console.main([job, f"{ends}; SELECT count(*) AS failures FROM exceptions"]) == 0
    assert re.findall(r"(?m)^\|(\w+) *\|$", capsys.readouterr().out) == ["status", "FINISHED", "failures", "0"]
    texts = "SELECT uid, state, key FROM state WHERE uid = 'counter' AND state = 'n' ORDER BY key LIMIT 1"
    assert console.main([original, texts, "SELECT key, value > 0 FROM `counter.n` ORDER BY key LIMIT 1"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"\|counter\|n +\|\"u0\"\|", out) and re.search(r"\|u0 *\|true", out)
    assert console.main([job, "SELECT * FROM nothing", "SELECT 1"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "TABLE_OR_VIEW_NOT_FOUND" in err
    assert console.main([str(tmp_path / "none"), "SELECT 1"]) == 2
    assert "there is neither a savepoint nor a completed checkpoint" in capsys.readouterr().err


def test_a_table_that_only_delta_can_read_is_read_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    unpack("spark", tmp_path)
    checkpoints = tmp_path / "job" / "checkpoints"
    manifest = Savepoint.open(str(checkpoints / "chk-1")).manifest
    # the version in which the changes were merged into the state, which has deletion vectors
    (checkpoints / "chk-4").mkdir()
    write_manifest(str(checkpoints / "chk-4"), replace(manifest, state=TableVersion("../state", 1), contents=None))
    assert DeltaLog(str(checkpoints / "state")).needs_delta(1) and not DeltaLog(str(checkpoints / "state")).needs_delta(
        0
    )
    merged = {(one.uid, one.state): one.rows for one in describe_savepoint(str(tmp_path / "job")).states}
    assert merged == {(one.uid, one.state): one.rows for one in list_states(str(tmp_path / "job"), spark)}
    assert all(one.is_equal for one in difference(str(checkpoints / "chk-4"), str(checkpoints / "chk-4")))
