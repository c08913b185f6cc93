"""Keyed state of one subtask in files: a small LSM tree of which each state is an immutable `FileSet`.

Rule: every operation takes a `FileSet` and leaves it unchanged. An operation that changes the state returns a new one;
files that are not in the new one are deleted once no retained epoch refers to them (``retention.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from flinkish.errors import InternalError
from flinkish.runtime.exchange.hashes import Hashes
from flinkish.runtime.state.files import lookup as lookups
from flinkish.runtime.state.files.compaction import Compaction, Expiry
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.files.lookup import Entries, Found, Group, Lookup, binary
from flinkish.runtime.state.files.merge import Equality, SameBytes, never_same, repeats_an_entry, resolve
from flinkish.runtime.state.files.references import FileSet, run_bytes
from flinkish.runtime.state.files.rows import Array, Rows, in_order
from flinkish.runtime.state.files.run_writer import write_run
from flinkish.runtime.state.files.runs import scan


class StateFiles:
    """Reads, writes and compacts the files with the keyed state of one subtask.

    Args:
        directory: where the files lie.
        same_id: whether two different encodings of (namespace, key) stand for equal values, as those of ``1`` and
            ``True`` do; it is called only if their hashes are equal.
        same_entry: the same for two encodings of user keys.
    """

    def __init__(
        self, directory: StateDirectory, same_id: SameBytes = never_same, same_entry: SameBytes = never_same
    ) -> None:
        self.directory = directory
        self._equality = Equality(same_id, same_entry)

    def add(self, files: FileSet, rows: Rows, epoch: int) -> FileSet:
        """Write the changes of an epoch as a delta, or as the base if there are no files yet.

        Raises:
            InternalError: there are several rows for one entry.
        """
        return add(self.directory, files, rows, epoch, self._equality)

    def lookup(
        self,
        files: FileSet,
        state: str,
        hashes: Hashes,
        ids: Sequence[bytes],
        entries: Sequence[bytes] | None = None,
        entry_hashes: Array | None = None,
    ) -> Found:
        """The newest values of many entries. If ``entries`` is None, these are the single entries of the groups (value,
        reducing and aggregating state); else one entry of each group (groups may repeat)."""
        count = len(hashes)
        of_entries = np.zeros(count, np.uint64) if entry_hashes is None else np.asarray(entry_hashes, np.uint64)
        wanted = Entries(state, hashes, binary(ids, count), of_entries, binary(entries, count))
        return Lookup(self.directory, wanted, self._equality).result(files.newest_first)

    def groups(self, files: FileSet, state: str, hashes: Hashes, ids: Sequence[bytes]) -> list[Group]:
        """All entries of many groups, no two of which are equal; the entries of each are sorted by their order."""
        return lookups.groups(self.directory, files.newest_first, state, hashes, ids, self._equality)

    def group_rows(self, files: FileSet, hashes: Hashes) -> list[int]:
        """An upper bound of the number of rows of the groups with these hashes; hidden rows count, too."""
        counts: list[int] = lookups.group_rows(self.directory, files.newest_first, hashes).tolist()
        return counts

    def group_batches(
        self, files: FileSet, state: str, hash_: int, key: bytes, batch_rows: int = 10_000
    ) -> Iterator[Group]:
        """The entries of one group, sorted by their order, in batches."""
        runs = files.newest_first
        return lookups.group_batches(self.directory, runs, state, int(hash_), key, self._equality, batch_rows)

    def scan(self, files: FileSet) -> Iterator[Rows]:
        """All rows that count, sorted by hash, in batches of bounded size. All are PUT; expired rows may be among them,
        and a group may continue in the next batch."""
        return scan(self.directory, files.newest_first, self._equality)

    def compact(
        self,
        files: FileSet,
        epoch: int,
        *,
        budget_bytes: int | None = None,
        expiry: Expiry | None = None,
        sweep: bool = False,
    ) -> FileSet:
        """Compact the files, a bounded amount; returns the files that are referred to from now on.

        Args:
            files: The files to compact.
            epoch: The epoch that writes new files.
            budget_bytes: About how many bytes may be rewritten; by default 16 times as many as were added since the
                last call, but at least 4 MiB and at most 64 MiB.
            expiry: Which rows may be dropped when they are rewritten.
            sweep: Go through the base for expired state even if little was added. Once a sweep has begun, later calls
                continue it.
        """
        return Compaction(self.directory, self._equality, epoch, budget_bytes=budget_bytes, expiry=expiry).run(
            files, sweep=sweep
        )


def add(directory: StateDirectory, files: FileSet, rows: Rows, epoch: int, equality: Equality) -> FileSet:
    """Write rows as a new delta, or as the base if there are no files yet; raises InternalError if they hold an entry
    twice."""
    if not len(rows):
        return files
    rows = in_order(rows)
    if repeats_an_entry(rows, equality):
        raise InternalError(
            f"epoch {epoch} writes an entry of the state twice", where=directory.path, expected="one row per entry"
        )
    if not files.files:
        first = resolve([[rows]], equality, drop_tombstones=True)
        return replace(files, base=write_run(directory, first, epoch)) if first is not None else files
    run = write_run(directory, rows, epoch)
    return replace(files, deltas=(*files.deltas, run), added=files.added + run_bytes(run))
