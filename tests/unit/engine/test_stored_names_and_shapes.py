"""What stored files name lies where flinkish would have put it, and content of any other shape is a typed error."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flinkish.checkpoint.claim import read_restored, subsume_claimed
from flinkish.checkpoint.compatibility import read_states
from flinkish.checkpoint.manifest import Manifest, Savepoint, TableVersion, write_manifest
from flinkish.checkpoint.restore import rows_of
from flinkish.checkpoint.table import CheckpointTable
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.watermark_strategy import WatermarkStrategy
from flinkish.connectors.file_system.source import FileSource
from flinkish.connectors.generated import NumberSequenceSource
from flinkish.connectors.hybrid_source import HybridSource
from flinkish.connectors.kafka.enumerator import next_offsets
from flinkish.connectors.paged_source import Page, PagedSource
from flinkish.connectors.spark import DeltaSource
from flinkish.core.source import SourceLimits, SourceSplit, SplitEnumeratorContext, SplitRange, SplitSource
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.delta.check import check_log
from flinkish.delta.fence import FencingLog
from flinkish.errors import (
    ConfigurationError,
    CorruptStateError,
    FinalOperationError,
    FlinkishError,
    OperationError,
    SavepointError,
)
from flinkish.jobdir.directory import JobDirectory
from flinkish.jobdir.layout import DrainMarker
from flinkish.jobdir.ownership import finish_move
from flinkish.jobmanager.query_inputs import input_has_ended, source_positions
from flinkish.launch.driver import requested_replay
from flinkish.runtime.epoch.changelog_files import read_parts
from flinkish.runtime.epoch.files import PreparedEpochs, Slice
from flinkish.runtime.job.accumulators import AccumulatorFiles
from flinkish.runtime.sources.job_enumerator import known_splits
from flinkish.runtime.sources.progress import decode_position, known_in
from flinkish.runtime.sources.split_list import SegmentFiles, SegmentsInMemory
from flinkish.runtime.state.files.references import FileReference
from flinkish.storage.sealed import sealed
from tests.support.job_files import put
from tests.support.profiles import examples
from tests.unit.minicluster.programs import job_of

NAMES = (
    *("../x", "../../outside", "/outside", "a/b", "spark\0", "spark\n", "", ".", "..", "link", "x" * 5000),
    *(7, None, []),
)


def outside(folder: Path) -> Path:
    """A directory beside the one that the user named, which nothing stored there may change."""
    place = folder / "outside"
    (place / "_delta_log").mkdir(parents=True)
    (place / "kept").write_text("kept")
    return place


def claim_of(folder: Path, savepoint: Path) -> JobDirectory:
    """The directory of a job that has claimed a savepoint."""
    directory = JobDirectory(str(folder / "job"))
    put(directory, "restored.json", {"path": str(savepoint), "claim_mode": "CLAIM"})
    return directory


def log_below(folder: Path) -> tuple[Path, Path]:
    """A table with a link to elsewhere, and the directory of its log."""
    table = folder / "state"
    (table / "_delta_log").mkdir(parents=True)
    (table / "link").symlink_to(outside(folder))
    return table, table / "_delta_log"


def is_refused(table: Path, words: str) -> None:
    with pytest.raises(SavepointError, match=words):
        check_log(str(table), None)


@pytest.mark.parametrize("table", ["..", "../..", "../../outside", "../outside", "/", "state/../..", "link", "changes"])
@pytest.mark.parametrize("field", ["state", "changes"])
def test_a_manifest_that_names_another_table_is_refused_and_claiming_deletes_nothing(
    tmp_path: Path, table: str, field: str
) -> None:
    place, savepoint = outside(tmp_path), tmp_path / "chk-1"
    manifest = Manifest("", "", 1, 0)
    changes: dict[str, Any] = {field: TableVersion(table)}
    write_manifest(str(savepoint), replace(manifest, **changes, savepoint_version=3 if field == "changes" else 2))
    (savepoint / "link").symlink_to(place)
    with pytest.raises(SavepointError, match=r"manifest.json is damaged: it names the table "):
        Savepoint.open(str(savepoint))
    with pytest.raises(SavepointError):
        subsume_claimed(claim_of(tmp_path, savepoint), 1, 1)
    assert (place / "kept").exists() and (savepoint / "manifest.json").exists()


def test_a_table_that_is_a_link_to_elsewhere_is_refused(tmp_path: Path) -> None:
    place, savepoint = outside(tmp_path), tmp_path / "savepoint-1"
    write_manifest(str(savepoint), Manifest("", "", 1, 0))
    (savepoint / "state").symlink_to(place)
    with pytest.raises(SavepointError, match="leads to .*outside, out of the directory"):
        Savepoint.open(str(savepoint))


def test_claiming_deletes_what_a_savepoint_consists_of_and_nothing_else_in_its_directory(tmp_path: Path) -> None:
    savepoint = tmp_path / "savepoint-1"
    write_manifest(str(savepoint), Manifest("", "", 1, 0))
    (savepoint / "state").mkdir()
    (savepoint / "notes.txt").write_text("mine")
    assert subsume_claimed(claim_of(tmp_path, savepoint), 1, 1) == str(savepoint)
    assert [path.name for path in savepoint.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    "action",
    [
        {"add": {"path": "/etc/data.parquet"}},
        {"add": {"path": "file:///etc/data.parquet"}},
        {"add": {"path": "../other/part.parquet"}},
        {"add": {"path": "%2e%2e/other/part.parquet"}},
        {"add": {"path": "link/kept"}},
        {"add": {"path": 7}},
        {"add": {"path": "part.parquet", "deletionVector": {"storageType": "p", "pathOrInlineDv": "/etc/x.bin"}}},
        {"add": {"path": "part.parquet", "deletionVector": {"storageType": "u", "pathOrInlineDv": "../" + "a" * 20}}},
    ],
)
def test_the_log_of_a_table_names_only_files_below_it(tmp_path: Path, action: dict[str, Any]) -> None:
    table, log = log_below(tmp_path)
    (log / f"{0:020d}.json").write_text(json.dumps(action))
    is_refused(table, "00000.json is not what Delta writes below the table")


@pytest.mark.parametrize("path", ["/etc/data.parquet", "../other/part.parquet", "%2e%2e/x.parquet", "link/kept"])
@pytest.mark.parametrize("part", ["", "0000000001.0000000002."])
def test_a_checkpoint_of_the_log_of_a_table_names_only_files_below_it(tmp_path: Path, path: str, part: str) -> None:
    table, log = log_below(tmp_path)
    checkpoint = log / f"{0:020d}.checkpoint.{part}parquet"
    # with its other part the checkpoint is whole
    other = log / checkpoint.name.replace("0000000001.0000000002.", "0000000002.0000000002.")
    pq.write_table(pa.table({"add": [{"path": "part-1.parquet"}]}), other)
    pq.write_table(pa.table({"add": [None, {"path": "part-0.parquet"}], "txn": [1, 2]}), checkpoint)
    check_log(str(table), None)
    pq.write_table(pa.table({"add": [{"path": "part-0.parquet"}, {"path": path}]}), checkpoint)
    is_refused(table, f"{checkpoint.name} is not what Delta writes below the table")


def test_a_vector_and_a_file_that_a_checkpoint_of_the_log_names_elsewhere_are_refused(tmp_path: Path) -> None:
    table, log = log_below(tmp_path)
    checkpoint = log / f"{0:020d}.checkpoint.parquet"
    vector = {"storageType": "p", "pathOrInlineDv": "/etc/x.bin"}
    pq.write_table(pa.table({"add": [{"path": "a.parquet", "deletionVector": vector}]}), checkpoint)
    is_refused(table, "it names the deletion vector '/etc/x.bin'")
    pq.write_table(pa.table({"sidecar": [{"path": "../../x.parquet"}]}), checkpoint)
    is_refused(table, "names further files")
    checkpoint.rename(log / f"{0:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json")
    is_refused(table, "names further files")


def test_commits_that_were_joined_name_only_files_below_the_table(tmp_path: Path) -> None:
    table, log = log_below(tmp_path)
    for version in range(2):
        (log / f"{version:020d}.json").write_text(json.dumps({"add": {"path": "a.parquet"}}))
    joined = log / f"{0:020d}.{1:020d}.compacted.json"
    joined.write_text(json.dumps({"add": {"path": "/etc/data.parquet"}}))
    is_refused(table, "compacted.json is not what Delta writes below the table")


@pytest.mark.parametrize("damage", [b"", b"PAR1", "cut", "flipped"])
def test_a_damaged_checkpoint_of_a_log_is_named(tmp_path: Path, damage: Any) -> None:
    folder, log = log_below(tmp_path)
    checkpoint = log / f"{0:020d}.checkpoint.parquet"
    protocol = [{"minReaderVersion": 1, "minWriterVersion": 2}, None]
    pq.write_table(pa.table({"add": [None, {"path": "a" * 500}], "protocol": protocol}), checkpoint)
    whole = checkpoint.read_bytes()
    table = CheckpointTable(None, str(folder), lambda: None)
    assert table.log.protocol() == protocol[0]
    flipped = whole[:4] + bytes(byte ^ 0x55 for byte in whole[4:-8]) + whole[-8:]
    checkpoint.write_bytes({"cut": whole[:-9], "flipped": flipped}.get(damage, damage))
    for read in (table.log.protocol, lambda: check_log(str(folder), None)):
        with pytest.raises(SavepointError, match=f"{checkpoint} is unreadable"):
            read()


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_a_reference_to_a_file_of_state_or_of_an_epoch_has_the_name_of_one(name: Any) -> None:
    good = FileReference("7-c0ffee.arrow", 1, 14, b"", (0, 0), (1, 0))
    assert FileReference.decode(good.encode()) == good
    with pytest.raises(ValueError, match="it names the file .*, expected a name of the form"):
        FileReference.decode((name, *good.encode()[1:]))
    with pytest.raises(ValueError):
        Slice.decode(json.dumps({"file": name, "offset": 0, "length": 1, "sha256": ""}).encode())


@pytest.mark.parametrize("name", [name for name in NAMES if name != ""], ids=repr)
def test_a_query_is_neither_moved_nor_found_elsewhere(tmp_path: Path, name: Any) -> None:
    place = outside(tmp_path)
    directory = JobDirectory(str(tmp_path / "job"))
    (tmp_path / "job" / "link").symlink_to(place)
    for content in ({"name": name, "first_epoch": 0}, {"name": "spark-1", "first_epoch": 0, "moved_from": name}):
        if content.get("moved_from", "") is None:
            continue
        put(directory, "query-location.json", content)
        with pytest.raises(FinalOperationError, match=r"query-location.json is damaged"):
            directory.query_location()
        with pytest.raises(FinalOperationError, match=r"query-location.json is damaged"):
            finish_move(directory)
    assert (place / "kept").exists()


def test_a_query_that_is_a_link_to_elsewhere_is_refused(tmp_path: Path) -> None:
    directory = JobDirectory(str(tmp_path / "job"))
    (tmp_path / "job" / "spark").symlink_to(outside(tmp_path))
    with pytest.raises(FinalOperationError, match="leads to .*outside"):
        directory.query_location()


class Pages(PagedSource):
    """A source whose pages are never fetched."""

    @property
    def bounded(self) -> bool:
        return True

    @property
    def produced_type(self) -> TypeInformation:
        return Types.INT()

    def fetch(self, cursor: Any) -> Page:
        return Page([], None)


# ------------------------------------------------------------------------------------------------ all kinds of files

TEXT = "cGFydA=="
OWNER = {"token": "t", "host": "h", "pid": 1, "started": "5", "renewals": 1, "remote": False, "renewed_s": 1.5}
STATE = {"uid": "u", "name": "n", "kind": "value", "value_type": None, "map_key_type": None, "key_type": None}
VERTEX = {"id": 1, "uid": "u", "level": 1, "parallelism": 2, "max_parallelism": 4, "keyed": True}
STRUCTURE = {"sinks": ["s"], "partitions": 2, "sources": ["e"], "vertices": [VERTEX]}


def location(job: Path) -> None:
    finish_move(JobDirectory(str(job)))
    JobDirectory(str(job)).query_location()


def restored(job: Path) -> None:
    directory = JobDirectory(str(job))
    remembered = read_restored(directory)
    if remembered is not None:
        rows_of(directory, remembered)
    subsume_claimed(directory, 1, 1)


#: (file, a good content, what reads it in the job directory)
KINDS: list[tuple[str, dict[str, Any], Callable[[Path], Any]]] = [
    ("query-location.json", {"name": "spark-4", "first_epoch": 4, "moved_from": "spark"}, location),
    ("owner.json", OWNER, lambda job: JobDirectory(str(job)).owner_liveness()),
    ("job.json", {"job_id": "a", "name": "n", "structure": STRUCTURE}, lambda job: JobDirectory(str(job)).job_id()),
    (
        "restored.json",
        {"path": "/nowhere", "rows": "restore-1", "sources": {"a": "b"}, "claim_mode": "CLAIM"},
        restored,
    ),
    ("states.json", {"states": [STATE]}, lambda job: read_states(JobDirectory(str(job)))),
    (
        "drain.json",
        {"epoch": 1, "positions": {"a": "b"}, "savepoint_directory": None, "levels": 2},
        lambda job: JobDirectory(str(job)).read(DrainMarker),
    ),
    (
        "accumulators/3.json",
        {"epoch": 3, "totals": TEXT},
        lambda job: AccumulatorFiles(str(job / "accumulators")).before(None),
    ),
    (
        "spark/prepared/3.json",
        {
            "version": 3,
            "epoch": 3,
            "time_ms": 1,
            "end_of_input": False,
            "reports": [TEXT],
            "committables": [TEXT],
            "sinks": ["s"],
        },
        lambda job: PreparedEpochs(str(job / "spark" / "prepared")).read(3),
    ),
    (
        "changelog/epoch=3/_parts.json",
        {"parts": [f"part-{'0' * 32}-{'0' * 64}.parquet"]},
        lambda job: read_parts(str(job / "changelog"), 3),
    ),
    (
        f"splits/{'0' * 32}.json",
        {"splits": [["a"], ["b", 0, 5, None]]},
        lambda job: SegmentFiles(str(job)).read("0" * 32),
    ),
]


def log_of_fencing(job: Path) -> None:
    FencingLog(str(job)).claim(0)


def log_of_checkpoints(job: Path) -> None:
    table = CheckpointTable(None, str(job), lambda: None)
    table.committed_ms(0)
    table.changed_since(-1)
    table.has_null(0, "key")


CLAIM = json.dumps({"owner": "o", "job": "j", "host": "h", "pid": 1, "claimed_at": "now"})
STATS = '{"nullCount": {"key": 0}}'
ADDED: dict[str, Any] = {"path": "part-0.parquet", "dataChange": True, "stats": STATS}

#: (a good line of the log of a Delta table, what reads it)
LINES: list[tuple[dict[str, Any], Callable[[Path], Any]]] = [
    ({"commitInfo": {"timestamp": 5, "userMetadata": CLAIM}}, log_of_fencing),
    ({"add": ADDED, "commitInfo": {"timestamp": 5}, "protocol": {"minWriterVersion": 2}}, log_of_checkpoints),
    ({"add": ADDED}, lambda job: check_log(str(job), None)),
]


@pytest.mark.parametrize(("good", "read"), LINES, ids=["fencing", "checkpoints", "checked"])
@settings(max_examples=examples(50), deadline=None)
@given(data=st.data())
def test_a_line_of_a_log_of_any_content_is_read_or_refused_by_the_name_of_its_file(
    tmp_path_factory: pytest.TempPathFactory, good: Any, read: Callable[[Path], Any], data: st.DataObject
) -> None:
    table = tmp_path_factory.mktemp("logs")
    file = table / "_delta_log" / f"{0:020d}.json"
    file.parent.mkdir()
    file.write_text(json.dumps(good))
    read(table)
    deep = st.just("[" * 200_000)
    file.write_text(data.draw(deep | mutated(good).map(json.dumps)))
    try:
        read(table)
    except FlinkishError as error:
        assert str(file) in str(error)


@pytest.mark.parametrize(
    "claim", ['{"owner": 5}', '{"owner": "o"}', '{"owner"', '{"owner"' + "[" * 200_000], ids=lambda text: text[:40]
)
def test_a_claim_of_another_shape_is_a_damaged_log(tmp_path: Path, claim: str) -> None:
    file = tmp_path / "_delta_log" / f"{0:020d}.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"commitInfo": {"userMetadata": claim}}))
    with pytest.raises(OperationError, match=f"the log of the fencing table is damaged: {file}"):
        FencingLog(str(tmp_path)).claim(0)


@pytest.mark.parametrize(
    "offset",
    ["7", "[]", '{"sources": 7}', '{"sources": {}}', '{"sources": {"u": []}}', "[" * 200_000],
    ids=lambda text: text[:40],
)
def test_an_offset_of_another_shape_is_a_damaged_log(offset: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_source(NumberSequenceSource(1, 9), WatermarkStrategy.no_watermarks(), "n").uid("u").print()
    job = job_of(env)
    sources = {vertex.id: vertex.source for vertex in job.vertices if vertex.source is not None}
    for read in (
        lambda: source_positions(job, sources, [offset], SegmentsInMemory(), {}),
        lambda: input_has_ended(job, sources, [offset]),
    ):
        with pytest.raises(CorruptStateError, match="the query's log|the position of a source"):
            read()


@pytest.mark.parametrize(
    "text", ["5", "[]", "{}", '{"directory": 5, "epoch": 1}', '{"directory"', "[" * 200_000], ids=lambda text: text[:40]
)
def test_a_request_for_a_replay_of_another_shape_is_an_error_of_configuration(text: str) -> None:
    with pytest.raises(ConfigurationError, match="FLINKISH_REPLAY=.*is no request for a replay"):
        requested_replay({"FLINKISH_REPLAY": text})


ODD = st.sampled_from(
    [
        *(None, True, 7, -1, 1 << 70, 1.5, float("inf"), "", "../outside", "/outside", "a\0b", "a\nb", "link"),
        *([], {}, [[]], {"a": []}),
    ]
)


@st.composite
def mutated(draw: st.DrawFn, value: Any) -> Any:
    """The value with one part dropped, replaced or nested."""
    if isinstance(value, (dict, list)) and value and draw(st.booleans()):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = draw(st.sampled_from(keys))
        copy = dict(value) if isinstance(value, dict) else list(value)
        if draw(st.booleans()):
            copy[key] = draw(mutated(value[key]))
        else:
            del copy[key]
        return copy
    return draw(ODD | st.just([value]) | st.just({"a": value}))


def content_below(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(("name", "good", "read"), KINDS, ids=[name for name, _, _ in KINDS])
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_file_of_any_content_is_read_or_refused_by_its_name_and_nothing_outside_changes(
    tmp_path_factory: pytest.TempPathFactory, name: str, good: Any, read: Callable[[Path], Any], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("kinds")
    place, job = outside(folder), folder / "job"
    before = content_below(place)
    job.mkdir()
    (job / "link").symlink_to(place)
    file = job / name
    file.parent.mkdir(parents=True, exist_ok=True)
    value = data.draw(mutated(good))
    value = {"version": 2, **value} if isinstance(value, dict) else value
    file.write_bytes(sealed(value) if isinstance(value, dict) else json.dumps(value).encode())
    try:
        read(job)
    except FlinkishError as error:
        assert os.path.basename(name) in str(error)
    assert content_below(place) == before


@pytest.mark.parametrize(("name", "good", "read"), KINDS, ids=[name for name, _, _ in KINDS])
def test_deep_nesting_is_a_damaged_file_and_what_was_written_is_read(
    tmp_path: Path, name: str, good: Any, read: Callable[[Path], Any]
) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(sealed({"version": 2, **good}))
    read(tmp_path)
    file.write_text('{"version": 1, "a": ' + "[" * 200_000 + "]" * 200_000 + "}")
    with pytest.raises(FlinkishError, match="nested too deeply") as caught:
        read(tmp_path)
    assert os.path.basename(name) in str(caught.value)


# ------------------------------------------------------------------------------------------------ positions of sources

SHA = "0" * 64
PAGE = {"bytes": 3, "file": f"/nowhere/7-{'0' * 32}.json", "sha256": SHA}
CHAIN = HybridSource([NumberSequenceSource(1, 9), Pages()])


def goes_on(source: SplitSource) -> Callable[[str], Any]:
    """All that the driver and the process of the enumerator do with a position before the first epoch is planned."""

    def read(text: str) -> Any:
        source.check_continuation(text, known_in(text))
        store = SegmentsInMemory()
        progress = decode_position(text, "s", store)
        enumerator = source.create_enumerator(known_splits(progress, store))
        enumerator.start(SplitEnumeratorContext("/nowhere", progress.state))
        enumerator.snapshot_state()

    return read


#: (kind of source, a good position, what reads it)
POSITIONS: list[tuple[str, dict[str, Any], Callable[[str], Any]]] = [
    (
        "files",
        {"complete": True, "ended": ["/b"], "splits": [["/a", 2, 6, {"bytes": 6, "modified_ns": 5}]]},
        goes_on(FileSource.text("/")),
    ),
    ("numbers", {"complete": True, "ended": [], "splits": [["0", 2, 9, None]]}, goes_on(NumberSequenceSource(1, 9))),
    (
        "pages",
        {
            "complete": False,
            "ended": ["6"],
            "splits": [["7", 0, 2, PAGE]],
            "state": {"cursor": 1, "ended": False, "pages": 8},
        },
        goes_on(Pages()),
    ),
    (
        "hybrid",
        {
            "complete": False,
            "ended": ["0:0"],
            "known": {"0:a": "b"},
            "splits": [["1:7", 0, 2, PAGE]],
            "state": {"stage": 1, "state": {"cursor": 1, "ended": False, "pages": 8}},
        },
        goes_on(CHAIN),
    ),
    (
        "kafka",
        {"complete": False, "ended": ["b-0"], "splits": [["a-0", 5, None, {"topic": "a", "partition": 0}]]},
        next_offsets,
    ),
]


@pytest.mark.parametrize(("kind", "good", "read"), POSITIONS, ids=[kind for kind, _, _ in POSITIONS])
@settings(max_examples=examples(75), deadline=None)
@given(data=st.data())
def test_a_position_of_any_content_is_read_or_refused(
    kind: str, good: dict[str, Any], read: Callable[[str], Any], data: st.DataObject
) -> None:
    read(json.dumps(good))
    with suppress(FlinkishError):
        read(json.dumps(data.draw(mutated(good))))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"reservoirVersion": 1e999, "index": -1}',
        '{"reservoirVersion": 5, "index": null}',
        '{"reservoirVersion": -5, "index": -1}',
        "[" * 200_000,
    ],
    ids=lambda text: text[:50] or "empty",
)
def test_what_is_no_offset_of_delta_is_refused(text: str) -> None:
    source = DeltaSource("/nowhere", Types.ROW_NAMED(["a"], [Types.INT()]))
    with pytest.raises(SavepointError, match="of a Delta source cannot be read"):
        source.load(None, SourceLimits(), text)


def test_a_page_is_read_only_from_a_file_with_the_name_of_a_page_by_one_who_knows_the_digest_of_its_content(
    tmp_path: Path,
) -> None:
    secret = tmp_path / f"7-{'0' * 32}.json"
    secret.write_text('["secret"]')
    known: dict[str, Any] = {"bytes": 10, "file": str(secret)}
    nowhere: list[Any] = [None, {}, {"file": 7}, {"file": "/etc/passwd"}, {"file": "../0.json"}]
    for info in (*nowhere, known, {**known, "sha256": SHA}):
        with pytest.raises(FinalOperationError, match="a page that was read ahead"):
            list(Pages().create_reader().read(SplitRange(SourceSplit("7", 0, 1, info), 0, 1), 10))
    known["sha256"] = hashlib.sha256(secret.read_bytes()).hexdigest()
    (batch,) = Pages().create_reader().read(SplitRange(SourceSplit("7", 0, 1, known), 0, 1), 10)
    assert batch.values == ["secret"]
