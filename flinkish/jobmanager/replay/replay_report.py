"""The report of a replay: a bounded selection of what each operator has received and emitted, as text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flinkish.common.arguments import abbreviated
from flinkish.runtime.job.deployment import JobDescriptor

#: The most characters of a value that are shown.
_VALUE_CHARACTERS = 200

#: The number of an operator's last watermarks that are shown.
_WATERMARKS = 5


@dataclass
class Records:
    """The records of one input or output: their number, and the first ones as (text, timestamp in ms)."""

    count: int = 0
    shown: list[tuple[str, int | None]] = field(default_factory=list)

    def add(self, values: list[Any], timestamps: list[int] | None, limit: int) -> None:
        """Count a batch, and keep its first records as long as fewer than ``limit`` are kept."""
        for place in range(min(len(values), limit - len(self.shown))):
            text = abbreviated(values[place], _VALUE_CHARACTERS)
            self.shown.append((text, None if timestamps is None else timestamps[place]))
        self.count += len(values)

    def describe(self) -> dict[str, Any]:
        """The records as values that JSON can hold."""
        shown = [{"value": text, "timestamp": timestamp} for text, timestamp in self.shown]
        return {"count": self.count, "records": shown}

    def lines(self, what: str) -> list[str]:
        """The records as lines for people; ``what`` says which records they are."""
        lines = [f"  {what}: {self.count} record{'' if self.count == 1 else 's'}"]
        lines += [f"    {text}" + ("" if time is None else f" @ {time}") for text, time in self.shown]
        more = self.count - len(self.shown)
        return [*lines, f"    ... and {more} more"] if more else lines


@dataclass
class OperatorStory:
    """What one subtask of an operator has received, by input (from 0), and emitted, by the tag of the output (None: the
    main output)."""

    received: dict[int, Records] = field(default_factory=dict)
    emitted: dict[str | None, Records] = field(default_factory=dict)
    watermarks: int = 0
    last_watermarks: list[int] = field(default_factory=list)


class ReplayReport:
    """Listens to the operators of a job (`OperatorListener`), and reports what they have received and emitted.

    Args:
        job: the job graph.
        limit: the most records that are shown of each input and output.
        only: (vertex, subtask) of the only task that is shown; None: all tasks.
    """

    def __init__(self, job: JobDescriptor, limit: int, only: tuple[int, int] | None) -> None:
        self._job = job
        self._limit = limit
        self._only = only
        self._vertex_of = {d.uid: vertex.id for vertex in job.vertices for d in vertex.operators}
        self._stories: dict[tuple[str, int], OperatorStory] = {}

    def _story(self, uid: str, subtask: int) -> OperatorStory | None:
        if self._only is not None and (self._vertex_of[uid], subtask) != self._only:
            return None
        return self._stories.setdefault((uid, subtask), OperatorStory())

    def received(
        self, uid: str, subtask: int, input_index: int, values: list[Any], timestamps: list[int] | None
    ) -> None:
        """Add records that an operator has received on one input; see `OperatorListener`."""
        story = self._story(uid, subtask)
        if story is not None:
            story.received.setdefault(input_index, Records()).add(values, timestamps, self._limit)

    def emitted(
        self, uid: str, subtask: int, tag_id: str | None, values: list[Any], timestamps: list[int] | None
    ) -> None:
        """Add records that an operator has emitted to one output; see `OperatorListener`."""
        story = self._story(uid, subtask)
        if story is not None:
            story.emitted.setdefault(tag_id, Records()).add(values, timestamps, self._limit)

    def emitted_watermark(self, uid: str, subtask: int, watermark_ms: int) -> None:
        """Add a watermark that an operator has emitted; see `OperatorListener`."""
        story = self._story(uid, subtask)
        if story is not None:
            story.watermarks += 1
            story.last_watermarks = [*story.last_watermarks, watermark_ms][-_WATERMARKS:]

    def operators(self) -> list[dict[str, Any]]:
        """The report as values that JSON can hold, in the order of the job's vertices. Subtasks of operators that have
        neither received nor emitted anything are left out."""
        found = []
        for vertex in self._job.vertices:
            for subtask in range(vertex.parallelism):
                for descriptor in vertex.operators:
                    story = self._stories.get((descriptor.uid, subtask))
                    if story is not None:
                        found.append(
                            {
                                "uid": descriptor.uid,
                                "name": descriptor.name,
                                "subtask": subtask,
                                "task": vertex.task_name(subtask),
                                "received": [
                                    {"input": index, **records.describe()}
                                    for index, records in sorted(story.received.items())
                                ],
                                "emitted": [
                                    {"tag": tag, **records.describe()} for tag, records in story.emitted.items()
                                ],
                                "watermarks": {"count": story.watermarks, "last": story.last_watermarks},
                            }
                        )
        return found

    def text(self) -> str:
        """The report as text for people."""
        lines: list[str] = []
        for vertex in self._job.vertices:
            for subtask in range(vertex.parallelism):
                for descriptor in vertex.operators:
                    story = self._stories.get((descriptor.uid, subtask))
                    if story is not None:
                        lines += [f"{descriptor.uid}/{subtask}  '{descriptor.name}' of {vertex.task_name(subtask)}"]
                        lines += _lines(story)
        return "\n".join(lines) if lines else "no operator has received or emitted anything"


def _lines(story: OperatorStory) -> list[str]:
    lines: list[str] = []
    for index, records in sorted(story.received.items()):
        lines += records.lines("received" if len(story.received) == 1 else f"received by input {index + 1}")
    for tag, records in story.emitted.items():
        lines += records.lines("emitted" if tag is None else f"emitted to side output '{tag}'")
    if story.watermarks:
        last = ", ".join(map(str, story.last_watermarks))
        lines.append(f"  watermarks: {story.watermarks}, the last ones {last}")
    return lines
