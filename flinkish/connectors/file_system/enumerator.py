"""Finds files: once, or again and again. What a file's positions are is up to its format."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Generic, TypeVar

from flinkish.connectors.file_system.listing import find_files, folder_of
from flinkish.connectors.file_system.paths import FileSystems
from flinkish.core.source import SourceSplit, SplitEnumerator
from flinkish.errors import ConnectionFailedError, ProgramError

#: What a format knows of a file after a look at it.
Facts = TypeVar("Facts")

#: Of how many files the facts are kept.
_MOST_FACTS = 1024


class FileEnumerator(SplitEnumerator, Generic[Facts]):
    """Splits are files, in the order (modification time, path).

    Args:
        paths: without braces.
        interval_s: seconds between two looks for new files; None: the set of files is static.
        restored: ids of the splits that a savepoint named.
        clock: gives seconds.
    """

    def __init__(
        self,
        paths: Sequence[str],
        interval_s: float | None,
        restored: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.systems = FileSystems([folder_of(path)[0] for path in paths])
        self._paths = paths
        self._interval_s = interval_s
        self._restored = frozenset(restored)
        self._clock = clock
        #: when to look again; None: never
        self._due_s: float | None = clock()
        self._frozen = False
        self._listed = False
        self._facts: dict[str, Facts] = {}

    def discover(self, known: Collection[str]) -> Sequence[SourceSplit]:
        now = self._clock()
        if self._due_s is None or now < self._due_s:
            return ()
        static = self._interval_s is None
        self._due_s = None if self._interval_s is None or self._frozen else now + self._interval_s
        known = frozenset(known)
        # a query that goes on has its static set of files already
        found = [] if static and known - self._restored else self._list()
        self._listed = True
        return [self.as_found(split) for split in found if split.id not in known]

    @property
    def complete(self) -> bool:
        return self._interval_s is None and self._listed

    def freeze(self) -> None:
        self._frozen = True
        if self._interval_s is not None:
            # one look more: all that is there now is read
            self._due_s = self._clock()

    def as_found(self, split: SourceSplit) -> SourceSplit:
        """The split as its format wants it. Reads nothing: there may be many."""
        return split

    def facts(self, split: SourceSplit) -> Facts:
        """What `look_at` found, which is asked once for a file: the engine asks before each epoch."""
        if split.id not in self._facts:
            if len(self._facts) >= _MOST_FACTS:
                del self._facts[next(iter(self._facts))]
            self._facts[split.id] = self.look_at(split)
        return self._facts[split.id]

    @abstractmethod
    def look_at(self, split: SourceSplit) -> Facts:
        """What must be known of a file in order to plan, out of the file itself."""

    def _list(self) -> list[SourceSplit]:
        found: dict[str, SourceSplit] = {}
        for path in self._paths:
            try:
                found |= {split.id: split for split in find_files(path, must_match=self._interval_s is None)}
            except ProgramError as error:
                if not self._listed:
                    raise
                # it was there before: an operator's matter
                raise ConnectionFailedError(error.what, where=error.where, expected=error.expected) from None
        return sorted(found.values(), key=lambda split: (split.info["modified_ns"], split.id))
