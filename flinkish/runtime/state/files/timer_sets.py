"""References to the files with the timers of a subtask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flinkish.errors import CorruptStateError
from flinkish.runtime.state.files.references import FileSet

#: The name of the timer service, and the name of the time domain.
TimerQueueName = tuple[str, str]


@dataclass(frozen=True)
class TimerSets:
    """The references to the files with the timers of a subtask, by timer service and time domain."""

    queues: Mapping[TimerQueueName, FileSet]

    def of(self, queue: TimerQueueName) -> FileSet:
        """The files of one service and domain."""
        return self.queues.get(queue, FileSet())

    def replaced(self, queue: TimerQueueName, files: FileSet) -> TimerSets:
        """A copy with other files for one service and domain."""
        queues = {name: held for name, held in self.queues.items() if name != queue}
        if files.files:
            queues[queue] = files
        return TimerSets(dict(sorted(queues.items())))

    @property
    def names(self) -> frozenset[str]:
        """The names of all files with timers."""
        return frozenset[str]().union(*(files.names for files in self.queues.values()))

    @property
    def size_bytes(self) -> int:
        """The size of all files with timers, in bytes."""
        return sum(files.size_bytes for files in self.queues.values())

    def encode(self) -> tuple[Any, ...]:
        """The references as plain data."""
        return tuple((*queue, files.encode()) for queue, files in self.queues.items())

    @staticmethod
    def decode(data: Any) -> TimerSets:
        """The inverse of `encode`. Raises CorruptStateError, or as `FileSet.decode` does, if the data is damaged."""
        try:
            queues = {(service, domain): files for service, domain, files in data}
        except (TypeError, ValueError) as error:
            raise CorruptStateError("the reference to the files of timers cannot be decoded") from error
        return TimerSets({queue: FileSet.decode(files) for queue, files in queues.items()})
