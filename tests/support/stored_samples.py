"""A content of each kind of stored file, with all of its fields set."""

from __future__ import annotations

from typing import Any

from flinkish.checkpoint.manifest import (
    CheckpointCounter,
    EndedSplits,
    MaintenanceCounts,
    Manifest,
    StateContents,
    TableContents,
    TableVersion,
)
from flinkish.jobdir.connect_server import EpochsWait, ForDriver, ServerEnd, ServerReport, StopRequest
from flinkish.jobdir.layout import (
    Answer,
    Attempts,
    ChainedOperator,
    Changelog,
    DrainMarker,
    EndOfInput,
    Finished,
    Job,
    JobEnd,
    Owner,
    OwnersEnd,
    Program,
    Query,
    QueryFile,
    Restored,
    RestoredByFallback,
    SavingNote,
    Sources,
    States,
    StoredRequest,
    StoredVertex,
    Structure,
    TotalsDescription,
)
from flinkish.minicluster.stored_epochs import Committed, StoredEpoch
from flinkish.runtime.epoch.changelog_files import ChangelogParts
from flinkish.runtime.epoch.files import PreparedEpoch
from flinkish.runtime.epoch.planner import EpochRequested, GivenUpPlan, StoredEpochTimes, StoredReached, StoredTimers
from flinkish.runtime.epoch.steps import ReportedFigures
from flinkish.runtime.job.accumulators import StoredTotals, TotalsBefore
from flinkish.runtime.job.report import LifecycleCall
from flinkish.runtime.sources.alignment import Reached
from flinkish.runtime.sources.sizer import EpochTimes
from flinkish.runtime.sources.split_list import Segment
from flinkish.runtime.state.state_rows import DeclaredState
from flinkish.runtime.task.open_functions import LifecycleTrace, OpenAttempt, OpenWorker
from flinkish.runtime.task.progress import WorkerProgress
from flinkish.runtime.task.stack_samples import SampledStack, SampleRequest, StackSamples
from flinkish.session.children import Child, StartedDrivers
from flinkish.storage.stored_file import StoredFile

HEX, RUN = "0" * 32, "ab" * 16
_STRUCTURE = Structure(
    sinks=["out"],
    partitions=2,
    sources=["events (parallelism 2)"],
    vertices=[StoredVertex(1, "sums", 1, 2, 4, True, [ChainedOperator("out", "Sink", True, True, False)])],
)
_PROGRAM = Program("clicks", [("events", "Source"), ("sums", "Sum")])
_OFFSET = {"epoch": 4, "sources": {}}
_BACK: dict[str, Any] = {"savepoint": "sp", "path": "/data/sp", "sources": {"events": "{}"}, "watermarks": {"sums": 7}}

#: A content and what stands in the name of its file, of each kind.
SAMPLES: tuple[tuple[StoredFile, tuple[object, ...]], ...] = (
    (Job(RUN, "clicks", 3, structure=_STRUCTURE, given_up=["old"]), ()),
    (
        Owner(
            token=RUN,
            fencing_token=4,
            host="h",
            machine="boot/pid:[1]",
            pid=1,
            started="5",
            renewals=2,
            container="container_1_2_01_000001",
            renewed_s=1.5,
            rest="http://127.0.0.1:8081",
            released=True,
            ended=OwnersEnd("SUSPENDED", "a signal", 9),
        ),
        (),
    ),
    (QueryFile("spark-4", 4, moved_from="spark"), ()),
    (Query({"spark.sql.files.minPartitionNum": "2"}, restored=True), ()),
    (Attempts(3), ()),
    (States([DeclaredState("sums", "sum", "value", "LONG", None, "STRING")]), ()),
    (Sources({"events": {"clicks": "id"}}), ()),
    (Restored(**_BACK, rows="restore-4", claim_mode="CLAIM", time_ms=5, subsumed=True), ()),
    (RestoredByFallback(**_BACK, rows="restore-epoch-9", claim_mode=None, time_ms=5, checkpoint="/c/chk-3"), (9,)),
    (DrainMarker(8, {"events": "{}"}, "/data/sp", 2), ()),
    (JobEnd(RUN, "CANCELED", HEX, False, True, _PROGRAM, 8, "/data/sp"), ()),
    (Finished(last_epoch=3), ()),
    (EndOfInput(query=4), ()),
    (Changelog(3, "spark", "keys that are floats"), ()),
    (TotalsDescription(2, 1, 9, 8, 20, 10, {"COMPLETED": 3}, {"FAILED": 1}, {"sums": {"records_in": 2}}), ()),
    (SavingNote("/data/sp/savepoint-1", of_stop=True), (HEX,)),
    (StoredRequest(action="stop", directory="/data/sp", drain=True, expires_ms=5), (RUN, HEX)),
    (Answer("/data/sp"), (RUN, HEX)),
    (StopRequest(now=True), ()),
    (EpochsWait(RUN, 7), ()),
    (ServerEnd(RUN, "an error"), ()),
    (
        ServerReport(
            ReportedFigures(3, 1, 20, 10, 5, False, sink_records={"out": 10}, tasks=[b"report"]),
            [ForDriver(sink="out", subtask=0, buffers=[b"buffer"])],
        ),
        (3,),
    ),
    (PreparedEpoch(3, 1, False, (b"report",), (b"output",), ("out",), fencing_token=4), (3,)),
    (StoredEpoch(_OFFSET, Reached({"a": {"b": 1}}, {"events": {}}), [(1, 0, b"header", None)]), (3,)),
    (Committed(3, True, b"totals"), ()),
    (StoredTotals(3, b"totals"), (3,)),
    (TotalsBefore(3, b"totals"), (3,)),
    (Segment([["a"], ["b", 0, 5, None]]), (HEX,)),
    (ChangelogParts((f"part-{HEX}.parquet",), (b"changes",)), ()),
    (GivenUpPlan(_OFFSET, 4), ()),
    (EpochRequested(3), ()),
    (StoredEpochTimes(EpochTimes(12.5, 2.0, {"events": 7.25})), ()),
    (StoredTimers({"1/0": 5}), ()),
    (StoredReached([(2, Reached()), (3, Reached({"a": {"b": 1}}, {}))]), ()),
    (WorkerProgress(1, 3, 500, ()), (HEX,)),
    (SampleRequest(HEX, 100, 50, 60_000, 100), ()),
    (StackSamples(HEX, 5, (SampledStack(1, 0, True, 7, ("shop.main:3", "shop.Total.map:17")),)), (HEX,)),
    (OpenAttempt("1-0badcafe"), ("1-0badcafe",)),
    (OpenWorker("1-0badcafe", "host-1", 4711), (HEX,)),
    (LifecycleTrace([LifecycleCall(5, "Map (1/2)", "Map", "map", "open", 3, "host-1", 4711)]), (HEX,)),
    (
        Manifest(
            RUN,
            "größte Aufgabe",
            17,
            1_700_000_000_000,
            ("events", "sums"),
            {"events": "{}"},
            {"sums": 7},
            (DeclaredState("sums", "sum", "value", "LONG", None, "STRING"),),
            TableVersion("../state", 42),
            TableVersion("../changes", 3),
            TableContents(42, (StateContents("sums", "sum", "value", 2, "5"),)),
            "dG90YWxz",
            3,
        ),
        (),
    ),
    (EndedSplits(["a", "b"]), (f"{HEX}-{HEX[:8]}",)),
    (CheckpointCounter(7), ()),
    (MaintenanceCounts({"merges": 1}), ()),
    (
        StartedDrivers(
            [
                Child(
                    "clicks",
                    "/jobs/clicks/clicks.py",
                    ["--fast"],
                    {"parallelism.default": "2"},
                    "ab-clicks.py",
                    1_700_000_000_000,
                    "WAITING",
                    1_700_000_000_100,
                    2,
                    1_700_000_004_000,
                    137,
                )
            ]
        ),
        (),
    ),
)


def path_of(sample: StoredFile, parts: tuple[object, ...]) -> str:
    """The path of its file in a job directory."""
    folder = sample.FOLDER.replace("<query>", "spark").replace("<n>", "3").replace("<savepoint>", "chk-17")
    return f"{folder}/{sample.file_name(*parts)}".lstrip("/")
