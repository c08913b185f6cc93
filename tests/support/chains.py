"""Operators that write down what happens to them, and tasks made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.runtime.exchange.buffer import (
    Buffer,
    BufferHeader,
    BufferKind,
    decode,
    decode_elements,
    encode_elements,
)
from flinkish.runtime.exchange.partitioners import EdgeDescriptor, GlobalPartitioner, InputDescriptor
from flinkish.runtime.job.deployment import (
    REPORT_VERTEX,
    JobDescriptor,
    JobSettings,
    OperatorDescriptor,
    VertexDescriptor,
)
from flinkish.runtime.job.operator import OperatorContext, OperatorFactoryBase, Output, StreamOperator
from flinkish.runtime.job.report import Row
from flinkish.runtime.task.task import EpochStamp
from flinkish.runtime.task.task_manager import StoredTask, TaskManager

#: What happened, in order: (operator, event). Tests clear it.
STORY: list[tuple[str, Any]] = []

Hook = Callable[["Telling", str, Any], None]


class Telling(StreamOperator):
    """Writes down each call; hands on everything. ``hook(operator, event, detail)`` may do more, or raise."""

    def __init__(self, name: str, hook: Hook | None) -> None:
        self.name = name
        self._hook = hook

    def _tell(self, event: str, detail: Any = None) -> None:
        STORY.append((self.name, event if detail is None else (event, detail)))
        if self._hook is not None:
            self._hook(self, event, detail)

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._tell("setup")

    def initialize_state(self) -> None:
        self._tell("initialize_state")

    def open(self) -> None:
        self._tell("open")

    def begin_epoch(self) -> None:
        self._tell("begin_epoch", self.context.epoch.epoch)

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        self._tell("process", list(values))
        self.output.collect(values, timestamps)

    def process_watermark(self, watermark_ms: int) -> None:
        self._tell("watermark", watermark_ms)
        super().process_watermark(watermark_ms)

    def process_status(self, idle: bool) -> None:
        self._tell("idle" if idle else "active")
        super().process_status(idle)

    def snapshot_state(self) -> None:
        self._tell("snapshot")

    def finish(self) -> None:
        self._tell("finish")

    def close(self) -> None:
        self._tell("close")

    def dispose(self) -> None:
        self._tell("dispose")


@dataclass
class TellingFactory(OperatorFactoryBase):
    name: str
    hook: Hook | None = None
    keyed: bool = False
    has_operator_state: bool = False

    def create(self) -> Telling:
        return Telling(self.name, self.hook)


def vertex(
    *names: str,
    hooks: dict[str, Hook] | None = None,
    parents: dict[str, str] | None = None,
    id: int = 1,
    out: bool = True,
    operator_state: bool = False,
    **settings: Any,
) -> VertexDescriptor:
    """A chain of telling operators, each fed by the one before, or by ``parents[name]``; the last sends to vertex 2."""
    places = {name: index for index, name in enumerate(names)}
    keyed = settings.get("keyed", False)
    edges = (EdgeDescriptor(2, 0, GlobalPartitioner(), 1),) if out else ()
    operators = tuple(
        OperatorDescriptor(
            f"uid-{name}",
            name,
            TellingFactory(name, (hooks or {}).get(name), keyed and index == 0, operator_state),
            places[(parents or {}).get(name, names[index - 1])] if index else -1,
            edges=edges if index == len(names) - 1 else (),
        )
        for index, name in enumerate(names)
    )
    values: dict[str, Any] = {
        "parallelism": 1,
        "max_parallelism": 4,
        "inputs": (InputDescriptor(0, 0),),
        "key_selectors": (lambda value: value,) if keyed else (),
        **settings,
    }
    return VertexDescriptor(id, " -> ".join(names), 1, operators, **values)


def data(subtask: int, *elements: Any, sequence: int = 0, origin: str = "0/a", to: int = 1) -> Buffer:
    """Values, and watermarks as ("wm", ms)."""
    values: list[Any] = []
    positions: list[int] = []
    events: list[int | bool] = []
    for element in elements:
        if isinstance(element, tuple) and element[0] == "wm":
            positions.append(len(values))
            events.append(element[1])
        else:
            values.append(element)
    header = BufferHeader(BufferKind.DATA, to, subtask, 0, origin, 0, sequence, len(values))
    return Buffer(header, encode_elements(values, None, positions, events))


@dataclass
class Worker:
    """A task manager and the state store that it writes to."""

    vertex: VertexDescriptor
    stored: dict[int, tuple[bytes, bytes | None]] = field(default_factory=dict)
    epoch: int = 0

    def __post_init__(self) -> None:
        filler = VertexDescriptor(0, "source", 0, (), 1, 1)
        self.job = JobDescriptor("job", "a job", (filler, self.vertex), (), JobSettings(share_functions=True))
        self.manager = TaskManager(self.job)

    def run(self, subtask: int, *elements: Any, commit: bool = True, time_ms: int = 0) -> list[Row]:
        """One task in the current epoch; ``commit`` False: the epoch fails elsewhere."""
        header, body = self.stored.get(subtask, (None, None))
        stamp = EpochStamp(self.epoch, time_ms)
        buffers = [data(subtask, *elements)]
        result, rows = self.manager.run_task(1, subtask, StoredTask(header, lambda: body), buffers, stamp)
        if result is not None and commit:
            self.stored[subtask] = (result.header.encode(), result.body if result.body_written else body)
        return rows

    def next_epoch(self) -> None:
        self.epoch += 1


def sent(rows: list[Row]) -> list[Any]:
    """The values in the buffers."""
    return [v for to, _, d in rows if to != REPORT_VERTEX for v in decode_elements(decode(d).payload).values]


def take_story() -> list[tuple[str, Any]]:
    story = list(STORY)
    STORY.clear()
    return story


NEVER = MIN_TIMESTAMP_MS
