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

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flinkish.common.sealed_json import sealed
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.connectors.delta_source import DeltaSource
from flinkish.connectors.file_system.source import FileSource
from flinkish.connectors.hybrid_source import HybridSource
from flinkish.connectors.kafka.continuation import next_offsets
from flinkish.connectors.number_sequence import NumberSequenceSource
from flinkish.connectors.paged_source import Page, PagedSource
from flinkish.core.source import SourceLimits, SourceSplit, SplitEnumeratorContext, SplitRange, SplitSource
from flinkish.errors import FinalOperationError, FlinkishError, SavepointError
from flinkish.jobmanager.directory.job_directory import JobDirectory
from flinkish.jobmanager.directory.query_move import finish_move
from flinkish.jobmanager.drain.marker import DrainMarker
from flinkish.jobmanager.savepoints.claim import subsume_claimed
from flinkish.jobmanager.savepoints.manifest import Manifest, TableVersion, read_manifest, write_manifest
from flinkish.jobmanager.savepoints.restore import read_restored, rows_of
from flinkish.jobmanager.savepoints.state_catalog import read_states
from flinkish.jobmanager.savepoints.table_log import check_log
from flinkish.runtime.accumulated import AccumulatorFiles
from flinkish.runtime.changelog_files import read_parts
from flinkish.runtime.epoch_files import Slice
from flinkish.runtime.prepared_epoch import PreparedEpochs
from flinkish.runtime.sources.job_enumerator import known_splits
from flinkish.runtime.sources.positions import decode_position, known_in
from flinkish.runtime.sources.split_list import SegmentFiles, SegmentsInMemory
from flinkish.runtime.state.files.references import FileReference

NAMES = (
    "../x",
    "../../outside",
    "/outside",
    "a/b",
    "spark\0",
    "spark\n",
    "",
    ".",
    "..",
    "link",
    "x" * 5000,
    7,
    None,
    [],
)


def outside(folder: Path) -> Path:
    """A directory beside the one that the user named, which nothing stored there may change."""
    place = folder / "outside"
    (place / "_delta_log").mkdir(parents=True)
    (place / "kept").write_text("kept")
    return place


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
    with pytest.raises(SavepointError, match=r"was not written by flinkish: it names the table .*manifest.json"):
        read_manifest(str(savepoint))
    directory = JobDirectory(str(tmp_path / "job"))
    directory.write("restored.json", {"path": str(savepoint), "claim_mode": "CLAIM"})
    with pytest.raises(SavepointError):
        subsume_claimed(directory, 1, 1)
    assert (place / "kept").exists() and (savepoint / "manifest.json").exists()


def test_a_table_that_is_a_link_to_elsewhere_is_refused(tmp_path: Path) -> None:
    place, savepoint = outside(tmp_path), tmp_path / "savepoint-1"
    write_manifest(str(savepoint), Manifest("", "", 1, 0))
    (savepoint / "state").symlink_to(place)
    with pytest.raises(SavepointError, match="leads to .*outside, out of the directory"):
        read_manifest(str(savepoint))


def test_claiming_deletes_what_a_savepoint_consists_of_and_nothing_else_in_its_directory(tmp_path: Path) -> None:
    savepoint = tmp_path / "savepoint-1"
    write_manifest(str(savepoint), Manifest("", "", 1, 0))
    (savepoint / "state").mkdir()
    (savepoint / "notes.txt").write_text("mine")
    directory = JobDirectory(str(tmp_path / "job"))
    directory.write("restored.json", {"path": str(savepoint), "claim_mode": "CLAIM"})
    assert subsume_claimed(directory, 1, 1) == str(savepoint)
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
    place, table = outside(tmp_path), tmp_path / "state"
    (table / "_delta_log").mkdir(parents=True)
    (table / "link").symlink_to(place)
    (table / "_delta_log" / f"{0:020d}.json").write_text(json.dumps(action))
    with pytest.raises(SavepointError, match="00000.json is not what Delta writes below the table"):
        check_log(str(table), None)


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_a_reference_to_a_state_file_has_the_name_of_one(name: Any) -> None:
    good = FileReference("7-c0ffee.arrow", 1, 14, b"", (0, 0), (1, 0))
    assert FileReference.decode(good.encode()) == good
    with pytest.raises(ValueError, match="it names the file .*, expected a name of the form"):
        FileReference.decode((name, *good.encode()[1:]))


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_the_files_of_an_epoch_have_the_names_that_tasks_give(tmp_path: Path, name: Any) -> None:
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
        directory.write("query-location.json", content)
        with pytest.raises(FinalOperationError, match=r"query-location.json is damaged"):
            directory.query_location()
        with pytest.raises(FinalOperationError, match=r"query-location.json is damaged"):
            finish_move(directory)
    assert (place / "kept").exists()


def test_a_query_that_is_a_link_to_elsewhere_is_refused(tmp_path: Path) -> None:
    place, directory = outside(tmp_path), JobDirectory(str(tmp_path / "job"))
    (tmp_path / "job" / "spark").symlink_to(place)
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


@pytest.mark.parametrize("info", [None, {}, {"file": 7}, {"file": "/etc/passwd"}, {"file": "../0.json"}])
def test_a_page_is_read_only_from_a_file_with_the_name_of_a_page(info: Any) -> None:
    wanted = SplitRange(SourceSplit("0", 0, 1, info), 0, 1)
    with pytest.raises(FinalOperationError, match="a page that was read ahead"):
        list(Pages().create_reader().read(wanted, 10))


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
    ("owner.json", OWNER, lambda job: JobDirectory(str(job)).owner_life()),
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
        lambda job: DrainMarker.read(JobDirectory(str(job))),
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

ODD = st.sampled_from(
    [
        None,
        True,
        7,
        -1,
        1 << 70,
        1.5,
        float("inf"),
        "",
        "../outside",
        "/outside",
        "a\0b",
        "a\nb",
        "link",
        [],
        {},
        [[]],
        {"a": []},
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
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
@settings(max_examples=150, deadline=None)
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


def test_a_page_is_read_only_by_one_who_knows_the_digest_of_its_content(tmp_path: Path) -> None:
    secret = tmp_path / f"7-{'0' * 32}.json"
    secret.write_text('["secret"]')
    for info in ({"bytes": 10, "file": str(secret)}, {"bytes": 10, "file": str(secret), "sha256": SHA}):
        with pytest.raises(FinalOperationError, match="a page that was read ahead"):
            list(Pages().create_reader().read(SplitRange(SourceSplit("7", 0, 1, info), 0, 1), 10))
    info["sha256"] = hashlib.sha256(secret.read_bytes()).hexdigest()
    (batch,) = Pages().create_reader().read(SplitRange(SourceSplit("7", 0, 1, info), 0, 1), 10)
    assert batch.values == ["secret"]
