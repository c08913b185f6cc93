"""Keyed state of one subtask in files: a small LSM tree of which each state is an immutable `FileSet`.

Rule: every operation takes a `FileSet` and leaves it as it is. What changes something returns another one; the files
that are not in that one any more go when nothing retained refers to them (``retention.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from flinkish.errors import InternalError
from flinkish.runtime.state.files import lookup as lookups
from flinkish.runtime.state.files.compaction import Compaction, Expiry
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.files.hashes import Hashes
from flinkish.runtime.state.files.lookup import Entries, Found, Group, Lookup, binary
from flinkish.runtime.state.files.merge import Equality, SameBytes, never_same, repeats_an_entry, resolve
from flinkish.runtime.state.files.references import FileSet, run_bytes
from flinkish.runtime.state.files.rows import Array, Rows, in_order
from flinkish.runtime.state.files.run_writer import write_run
from flinkish.runtime.state.files.runs import scan


class StateFiles:
    """See the module. ``same_id``, ``same_entry``: whether bytes that differ stand for equal values (``1`` and
    ``True``); they are asked only where hashes are equal."""

    def __init__(
        self, directory: StateDirectory, same_id: SameBytes = never_same, same_entry: SameBytes = never_same
    ) -> None:
        self.directory = directory
        self._equality = Equality(same_id, same_entry)

    def add(self, files: FileSet, rows: Rows, epoch: int) -> FileSet:
        """Write what an epoch has changed. The first rows of all become the base."""
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
        """The newest value of many entries: those without name when ``entries`` is None (value, reducing and
        aggregating state), else one entry each of the groups (which may repeat)."""
        count = len(hashes)
        of_entries = np.zeros(count, np.uint64) if entry_hashes is None else np.asarray(entry_hashes, np.uint64)
        wanted = Entries(state, hashes, binary(ids, count), of_entries, binary(entries, count))
        return Lookup(self.directory, wanted, self._equality).result(files.newest_first)

    def groups(self, files: FileSet, state: str, hashes: Hashes, ids: Sequence[bytes]) -> list[Group]:
        """All entries of many groups, of which no two are equal; those of each by their order."""
        return lookups.groups(self.directory, files.newest_first, state, hashes, ids, self._equality)

    def group_rows(self, files: FileSet, hashes: Hashes) -> list[int]:
        """How many rows the groups with these hashes have at most: rows that are hidden count, too."""
        counts: list[int] = lookups.group_rows(self.directory, files.newest_first, hashes).tolist()
        return counts

    def group_batches(
        self, files: FileSet, state: str, hash_: int, key: bytes, batch_rows: int = 10_000
    ) -> Iterator[Group]:
        """The entries of one group by their order, in batches."""
        runs = files.newest_first
        return lookups.group_batches(self.directory, runs, state, int(hash_), key, self._equality, batch_rows)

    def scan(self, files: FileSet) -> Iterator[Rows]:
        """Everything that is there, in the order of the hashes, in batches that are bounded in bytes. All rows are PUT;
        a group may go on in the next batch. Rows that have expired may be among them."""
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
        """Bring files together, a bounded amount.

        Args:
            budget_bytes: About how much may be rewritten; by default 4 MiB, or 16 times what was added.
            expiry: What may be dropped when it is rewritten.
            sweep: Go through the base for expired state even if little was added. Once a sweep has begun it goes on
                in later calls by itself.
        """
        return Compaction(self.directory, self._equality, epoch, budget_bytes=budget_bytes, expiry=expiry).run(
            files, sweep=sweep
        )


def add(directory: StateDirectory, files: FileSet, rows: Rows, epoch: int, equality: Equality) -> FileSet:
    """Write rows as a new delta, or as the base if they are the first."""
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
