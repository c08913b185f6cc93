"""Base of sources whose records are fetched page by page, but cannot be fetched twice: an HTTP API, a queue, a query
whose result grows.

What such a service holds is not known before it is asked, and it may answer differently when it is asked again. So
pages are read ahead: the enumerator fetches them, beside the driver, and writes each page into a file in the job
directory before any epoch is planned that reads it. A page is a split; a position is the index of a record in its page.
Readers read these files only: an epoch that runs again reads the same records, and the service is never asked twice for
a page that was planned.

Rule: a page counts once the offset that names it is in the query's offset log, together with the cursor of the page
that follows. A page that was fetched before a failure, but is in no logged offset, is fetched again.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import time
import uuid
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from flinkish.common.arguments import result_of_each
from flinkish.common.detach import handing_over
from flinkish.core.source import (
    SourcePosition,
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
    SplitRange,
    SplitReader,
    SplitRecords,
    SplitSource,
    UnitCost,
    positions_text,
)
from flinkish.errors import FinalOperationError, ProgramError
from flinkish.storage.paths import FileKind, NameForm
from flinkish.storage.sealed import json_as, typed
from flinkish.storage.stores import storage_errors, storage_of

#: Number of epochs for which a page's file is kept after the page was read to its end: far more epochs than the query's
#: offset log keeps.
KEPT_EPOCHS = 1_000
_WHERE = "PagedSource"
#: The ids of splits.
_PAGE = NameForm(r"[0-9]{1,18}")
#: Number of pages that are deleted together, since a deletion lists the whole directory.
DELETED_AT_ONCE = 64


class Page(NamedTuple):
    """A page of records, as `PagedSource.fetch` returns it.

    Args:
        values: the records, made of JSON's types, in the order in which they are to be read.
        next: the cursor of the next page, made of JSON's types; None: there is no next page and never will be. A page
            without values whose ``next`` is the cursor that it was fetched with: there is nothing new now.
    """

    values: list[Any]
    next: Any


@dataclass(frozen=True)
class _PageInfo:
    """What the split of a page knows: its file, how large that is, and the digest of its content. Nobody who does not
    know what is in a file can name its digest, so a position leads to no other file."""

    bytes: int
    file: str
    sha256: Annotated[str, NameForm(r"[0-9a-f]{64}")]


@dataclass(frozen=True)
class _State:
    """The state of the enumerator: the cursor of the next page, whether there is none, and the pages so far."""

    cursor: Any
    ended: bool
    pages: int


class PagedSource(SplitSource):
    """A source that is read page by page. Subclasses implement ``bounded``, ``produced_type`` and `fetch`.

    The pages of an epoch are distributed over the subtasks as files are; `DataStream.set_parallelism(1)` keeps all
    records in their order.
    """

    splits_are = "pages"
    #: how long to wait before a service that had nothing new is asked again, in milliseconds
    poll_interval_ms: int = 1_000
    #: how many unread pages there are at most, and so the most pages that one epoch can read
    max_pages_ahead: int = 16

    @abstractmethod
    def fetch(self, cursor: Any) -> Page:
        """Fetch the page of a cursor; the cursor of the first page is None. Called beside the driver. An exception
        fails the job: the restart strategy decides whether it goes on, and then the page is fetched again."""

    def record(self, value: Any) -> Any:
        """Convert a value of a page to a record of the declared type; by default the value itself. Called in the worker
        processes for each value, and again when an epoch runs again."""
        return value

    def check_continuation(self, position: str | None, known: Mapping[str, str]) -> dict[str, str]:
        """Check that the position leads to pages of such a source.

        Raises:
            SavepointError: it does not.
        """
        if position is not None:
            found = SourcePosition.decode(position, _WHERE)
            try:
                if found.state is not None:
                    typed(_State, found.state)
                for number in (*found.ended, *(split[0] for split in found.splits)):
                    _PAGE.checked(number)
                for _, at, end, info in found.splits:
                    typed(_PageInfo, info)
                    if end is None or not 0 <= at <= end:
                        raise ValueError("it lies outside of the page")
            except ValueError as error:
                raise SourcePosition.refusal(position, _WHERE, error) from None
        return dict(known)

    def create_enumerator(self, restored: Sequence[SourceSplit]) -> SplitEnumerator:
        return _PageEnumerator(self, restored)

    def create_reader(self) -> SplitReader:
        return _PageReader(self.record)


class _PageEnumerator(SplitEnumerator):
    def __init__(
        self, source: PagedSource, restored: Sequence[SourceSplit], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._source = source
        self._clock = clock
        self._directory = ""
        self._cursor: Any = None
        self._complete = False
        self._pages = 0
        #: numbers of the pages whose files are not deleted yet, in the order of the engine's splits
        self._order = deque(int(split.id) for split in restored)
        self._deleted = 0
        #: (epoch, number of pages that had been read to their ends before it), both increasing
        self._ended: deque[tuple[int, int]] = deque([(0, 0)])
        self._ask_again_at = float("-inf")
        self._frozen = False

    def start(self, context: SplitEnumeratorContext) -> None:
        self._directory = context.directory
        if context.state is not None:
            state = typed(_State, context.state)
            self._cursor, self._pages, self._complete = state.cursor, state.pages, state.ended

    def snapshot_state(self) -> Any:
        return {"cursor": self._cursor, "ended": self._complete, "pages": self._pages}

    @property
    def complete(self) -> bool:
        return self._complete

    def splits_ended(self, count: int, epoch: int) -> None:
        if count > self._ended[-1][1]:
            self._ended.append((epoch, count))
        while len(self._ended) > 1 and self._ended[1][0] + KEPT_EPOCHS <= epoch:
            self._ended.popleft()
        over = self._ended[0][1] if self._ended[0][0] + KEPT_EPOCHS <= epoch else 0
        if over - self._deleted >= DELETED_AT_ONCE:
            self._delete({self._order.popleft() for _ in range(over - self._deleted)})
            self._deleted = over

    def discover(self, known: Collection[str]) -> Sequence[SourceSplit]:
        found: list[SourceSplit] = []
        unread = len(self._order) + self._deleted - self._ended[-1][1]
        for _ in range(self._source.max_pages_ahead - unread):
            if self._complete or self._clock() < self._ask_again_at:
                break
            page = _checked(self._source.fetch(self._cursor))
            before, self._cursor = self._cursor, page.next
            if page.next is None:
                self._complete = True
            if page.values:
                found.append(self._keep(page.values))
            elif page.next == before and not self._complete:
                wait_s = float("inf") if self._frozen else self._source.poll_interval_ms / 1000
                self._ask_again_at = self._clock() + wait_s
                break
        return found

    def freeze(self) -> None:
        self._frozen = True

    def cost(self, split: SourceSplit, position: int) -> UnitCost:
        return UnitCost(1.0, split.info["bytes"] / max(1, split.end or 1))

    def _keep(self, values: list[Any]) -> SourceSplit:
        number, self._pages = self._pages, self._pages + 1
        path = posixpath.join(self._directory, f"{number}-{uuid.uuid4().hex}.json")
        data = json.dumps(values).encode()
        with storage_errors("write", path):
            storage_of(path).replace(path, data, durable=True)
        self._order.append(number)
        info = {"bytes": len(data), "file": path, "sha256": hashlib.sha256(data).hexdigest()}
        return SourceSplit(str(number), 0, len(values), info)

    def _delete(self, pages: Collection[int]) -> None:
        storage = storage_of(self._directory)
        with storage_errors("delete in", self._directory):
            for entry in storage.list(self._directory):
                number = entry.name.partition("-")[0]
                if number.isdecimal() and int(number) in pages:
                    storage.delete(entry.path)


def _checked(page: Any) -> Page:
    """Return the page if JSON keeps it unchanged.

    Raises:
        ProgramError: it is no Page, its values are no list, or JSON would change them or the cursor.
    """
    if not isinstance(page, Page):
        raise ProgramError(
            f"the source gave {page!r:.200} instead of a page",
            expected="Page(values, next)",
            hint="see PagedSource.fetch",
        )
    try:
        kept = json.loads(json.dumps(list(page)))
        # a NaN does not equal itself, but its text does
        same = kept == list(page) or repr(kept) == repr(list(page))
    except (TypeError, ValueError):
        same = False
    if not same or not isinstance(page.values, list):
        raise ProgramError(
            f"a page holds what cannot be kept as JSON: {str(page)[:200]}",
            expected="a list of values made of None, bool, int, float, str, lists, and dicts with str as keys",
            hint="keep the service's own answer; PagedSource.record makes records of it in the workers",
        )
    return page


class _PageReader(SplitReader):
    def __init__(self, record: Callable[[Any], Any]) -> None:
        self._record = record
        #: (file, values) of the page that was read last, since a large page is read over several epochs
        self._kept: tuple[str, list[Any]] = ("", [])
        #: the index of the first value of the last batch
        self._begin = 0

    def read(self, wanted: SplitRange, batch_size: int) -> Iterator[SplitRecords]:
        info = _page_info(wanted.split)
        if self._kept[0] != info.file:
            self._kept = (info.file, _read_page(info))
        values = self._kept[1]
        stop = len(values) if wanted.stop is None else wanted.stop
        for begin in range(wanted.start, stop, batch_size):
            page, self._begin = values[begin : min(begin + batch_size, stop)], begin
            yield SplitRecords(result_of_each(handing_over(self._record), page, "PagedSource.record()"), None)

    def place_of(self, split: str, first: int, last: int) -> str:
        return f"page {split}, {positions_text('value', self._begin + first, self._begin + last)}"


def _page_info(split: SourceSplit) -> _PageInfo:
    """What is known of a page. A savepoint may say it, from which a job goes on in another job directory: so the file
    may lie in any directory, but it must have the name of this page."""
    try:
        info = typed(_PageInfo, split.info)
    except ValueError as error:
        raise _lost(f"page {split.id}", f"is not described as it was: {error}") from error
    directory, name = posixpath.split(info.file)
    try:
        NameForm(rf"{re.escape(split.id)}-[0-9a-f]{{32}}\.json").path(directory, name)
    except ValueError as error:
        raise _lost(info.file, f"is none of this source: {error}") from error
    return info


def _read_page(info: _PageInfo) -> list[Any]:
    with storage_errors("read", info.file):
        try:
            data = storage_of(info.file).read(info.file, FileKind.PAGE)
        except FileNotFoundError as error:
            raise _lost(info.file, "is not there any more") from error
        except ValueError as error:
            raise _lost(info.file, f"is damaged ({error})") from error
    if hashlib.sha256(data).hexdigest() != info.sha256:
        raise _lost(info.file, "is damaged")
    try:
        return json_as(list[Any], data)
    except ValueError as error:
        raise _lost(info.file, f"is damaged ({error})") from error


def _lost(path: str, how: str) -> FinalOperationError:
    return FinalOperationError(
        f"a page that was read ahead {how}",
        where=path,
        expected="the job directory in which it was fetched, also where a job goes on from a savepoint",
        hint="restore the file from a copy, or start the job in a new job directory without a savepoint",
    )
