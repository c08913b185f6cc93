"""The base of the enumerators of files: lists files once, or again and again. Each format decides what a position in
its files is."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from flinkish.connectors.file_system.listing import find_files, folders_of
from flinkish.connectors.file_system.paths import FileSystems
from flinkish.core.source import SourceSplit, SplitEnumerator
from flinkish.errors import ConnectionFailedError, ProgramError

#: The facts about a file that a format reads from the file itself.
Facts = TypeVar("Facts")

#: The number of files whose facts are cached: more than the subtasks of a job can have open.
_MOST_FACTS = 16_384
#: The number of files that are looked at at the same time.
LOOKING_THREADS = 32


class FileEnumerator(SplitEnumerator, Generic[Facts]):
    """Finds the files of a source as splits, in the order (modification time, path).

    Args:
        paths: paths or URIs.
        interval_s: seconds between two listings; None: the set of files is static.
        restored: ids of the splits of the savepoint that the job was started from.
        clock: gives seconds and never goes back.
    """

    def __init__(
        self,
        paths: Sequence[str],
        interval_s: float | None,
        restored: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.systems = FileSystems(folders_of(paths))
        self._paths = paths
        self._interval_s = interval_s
        self._restored = frozenset(restored)
        self._clock = clock
        #: when to list the files again, in seconds; None: never
        self._due_s: float | None = clock()
        self._frozen = False
        self._listed = False
        #: split id -> facts about its file, those that were asked for last at the end
        self._facts: dict[str, Facts] = {}
        #: split id -> its facts, while the file is looked at
        self._looking: dict[str, Future[Facts]] = {}
        self._pool: ThreadPoolExecutor | None = None

    def discover(self, known: Collection[str]) -> Sequence[SourceSplit]:
        now = self._clock()
        if self._due_s is None or now < self._due_s:
            return ()
        static = self._interval_s is None
        self._due_s = None if self._interval_s is None or self._frozen else now + self._interval_s
        known = frozenset(known)
        # a query that goes on has discovered its static set of files already
        found = [] if static and known - self._restored else self._list()
        self._listed = True
        return [self.as_found(split) for split in found if split.id not in known]

    @property
    def complete(self) -> bool:
        return self._interval_s is None and self._listed

    def freeze(self) -> None:
        self._frozen = True
        if self._interval_s is not None:
            # list the files once more, so that all that are there now are read
            self._due_s = self._clock()

    def as_found(self, split: SourceSplit) -> SourceSplit:
        """The split of a file that was listed, as its format needs it. Must not read the file, since there may be
        many."""
        return split

    def reads_file(self, split: SourceSplit) -> bool:
        """Whether `look_at` reads the file, and may do so for several files at the same time."""
        return False

    def expect(self, splits: Sequence[SourceSplit]) -> None:
        new = [one for one in splits if one.id not in self._facts and one.id not in self._looking]
        for split in filter(self.reads_file, new):
            self._pool = self._pool or ThreadPoolExecutor(LOOKING_THREADS, "flinkish-file-facts")
            self._looking[split.id] = self._pool.submit(self.look_at, split)

    def facts(self, split: SourceSplit) -> Facts:
        """The facts about a file, from a cache: the engine asks for them before each epoch, and `look_at` reads the
        file."""
        found = self._facts.pop(split.id, None) or self._looked_ahead(split) or self.look_at(split)
        self._facts[split.id] = found
        if len(self._facts) > _MOST_FACTS:
            del self._facts[next(iter(self._facts))]
        return found

    def _looked_ahead(self, split: SourceSplit) -> Facts | None:
        """The facts about a file that was expected; None if it was not, or if it could not be read then."""
        looking = self._looking.pop(split.id, None)
        return None if looking is None or looking.exception() is not None else looking.result()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    @abstractmethod
    def look_at(self, split: SourceSplit) -> Facts:
        """Read the facts that planning needs from the file itself."""

    def _list(self) -> list[SourceSplit]:
        found: dict[str, SourceSplit] = {}
        for path in self._paths:
            try:
                found |= {split.id: split for split in find_files(path, must_match=self._interval_s is None)}
            except ProgramError as error:
                if not self._listed:
                    raise
                # the path existed before, so this is no error of the program: the operator must act
                raise ConnectionFailedError(error.what, where=error.where, expected=error.expected) from None
        return sorted(found.values(), key=lambda split: (split.info["modified_ns"], split.id))
