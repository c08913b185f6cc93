"""Plans the epochs of a job with several sources, or recomputes from logged offsets who reads what in them.

    python -m tests.support.planned_epochs FOLDER plan|again

``FOLDER/input`` holds text files. ``plan`` writes the offsets to ``FOLDER/offsets.json``, as Spark's log would hold
them, and prints the shares of all subtasks in all epochs. ``again`` prints those of another query over the same files,
and then, when the files are gone, those of the first query once more.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from flinkish.connectors.file_system.source import FileSource
from flinkish.connectors.generated import CollectionSource, DataGeneratorSource, NumberSequenceSource
from flinkish.core.source import SplitSource
from flinkish.runtime.job.deployment import JobDescriptor, JobSettings, OperatorDescriptor, VertexDescriptor
from flinkish.runtime.operators.source_and_sink import SourceOperatorFactory
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.sources.job_enumerator import JobEnumerator
from flinkish.runtime.sources.split_list import SegmentFiles
from tests.support.lettered_source import LetteredSource


def job_of(folder: Path) -> JobDescriptor:
    """Every source that needs no server; three subtasks each."""
    sources: list[SplitSource] = [
        FileSource.text(str(folder / "input")),
        CollectionSource([(n, f"value {n}") for n in range(300)]),
        NumberSequenceSource(1, 400, splits=5),
        DataGeneratorSource(lambda n: n, 350, splits=4),
        LetteredSource({name: 17 * place % 40 for place, name in enumerate("qwertyuiop")}),
        LetteredSource({name: 23 * place % 70 for place, name in enumerate("asdfghjkl")}, together=True),
    ]
    vertices = []
    for number, source in enumerate(sources):
        head = OperatorDescriptor(f"source-{number}", "Source", SourceOperatorFactory())
        vertices.append(VertexDescriptor(number, head.name, 0, (head,), 3, 4, source=source, bounded=True))
    return JobDescriptor("00" * 16, "job", tuple(vertices), (), JobSettings(max_records_per_epoch=50))


def main(folder: Path, what: str) -> None:
    """Print the shares, an epoch a line."""
    log = folder / "offsets.json"
    enumerator = JobEnumerator(job_of(folder), SegmentFiles(str(folder / what)), ManualClock(7))
    offsets: list[dict[str, Any]] = [{}]
    while (after := enumerator.next_offset(json.loads(json.dumps(offsets[-1])))) != offsets[-1]:
        offsets.append(after)
    show(enumerator, offsets)
    if what == "plan":
        log.write_text(json.dumps(offsets))
        return
    for path in (folder / "input").iterdir():
        # what is read is in the offsets, whatever the directory looks like by now
        path.unlink()
    former = JobEnumerator(job_of(folder), SegmentFiles(str(folder / "plan")), ManualClock(7))
    show(former, json.loads(log.read_text()))


def show(enumerator: JobEnumerator, offsets: list[dict[str, Any]]) -> None:
    """Print the shares between these offsets."""
    for start, end in zip(offsets, offsets[1:]):
        print(enumerator.shares(start, end))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
