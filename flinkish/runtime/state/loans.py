"""Values of keyed state that user code has in its hands and may change in place.

The rule: a value that a call of user code has read from state, or put into it, is the state's until the call ends. What
the call changes in it is in the state, without ``update`` or ``put``, as on Flink's heap and in PyFlink's cache. After
the call the two are separate, so that the result depends neither on epochs nor on where values lie.

A handle lends a copy, and gives the same copy again while the call lasts. What user code puts into state is at first
stored as it is. Operators end a call when they set the next key (`Loans.enter`; hot loops look at ``open`` first): then
each value that was lent is compared with the state's own, and written if it differs. Values in which nothing can change
are never lent, so state of numbers, texts and tuples of them costs nothing.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Hashable, Iterable
from operator import is_
from typing import TYPE_CHECKING, Any

from flinkish.common.detach import SHARED, copies_attributes, detached, handed_over
from flinkish.common.types import Row
from flinkish.runtime.state.state_rows import VOID_NAMESPACE

if TYPE_CHECKING:
    from flinkish.runtime.state.backend import KeyedStateBackend
    from flinkish.runtime.state.state_table import StateTable

#: Of so many objects at a time it is looked whether they change after their call.
_MOST_WATCHED = 100

_LOG = logging.getLogger("flinkish.KeyedStateBackend")

_NOTHING = object()


class Loan:
    """What the running call has in its hands of one state: a value (of ListState and MapState see `EntryLoan`).

    A loan ends early if the state gets another value: it holds for the very object that the state had.
    """

    __slots__ = ("_lent", "_loans", "_own", "namespace", "table")

    def __init__(self, loans: Loans, table: StateTable, namespace: Hashable) -> None:
        self._loans, self.table, self.namespace = loans, table, namespace
        self._own = self._lent = _NOTHING

    def lend(self, own: Any) -> Any:
        """A value of the state for user code: what it has got already in this call, or a copy, or the value itself if
        nothing in it can change."""
        if own is self._own:
            return self._lent
        lent = detached(own)
        if lent is not own:
            self._loans.begin(self)
            self._own = own
            self._lent = lent
        return lent

    def lent(self, own: Any) -> Any:
        """What user code has in place of a value of the state; the value itself if it was not lent."""
        return self._lent if own is self._own else own

    def give(self, value: Any) -> None:
        """Note that the state has got an object of user code as it is."""
        self._loans.begin(self, value)
        self._own = self._lent = value

    def settle(self, key: Any) -> None:
        """Take back what was lent of the state of a key."""
        values, lent, self._lent = self.table.existing(self.namespace), self._lent, _NOTHING
        if values is None or values.get(key, _NOTHING) is not self._own:
            self._own = _NOTHING
            return
        if lent is self._own:
            self._own = _NOTHING
            # the state refers to it, too
            taken = handed_over(lent, 1)
            if taken is not lent:
                values[key] = taken
                self._loans.watch(self.table, taken, lent)
        elif differs(self._own, lent):
            self._own = _NOTHING
            taken = handed_over(lent)
            self.table.mark(self.namespace, key)
            values[key] = taken
            self._loans.watch(self.table, taken, lent)
        else:
            if not self._loans.watches_enough:
                self._loans.watch(self.table, self._own, lent)
            self._own = _NOTHING

    def forget(self) -> None:
        """End the loan without a look at it."""
        self._own = self._lent = _NOTHING


class EntryLoan:
    """What the running call has in its hands of a ListState (by index) or a MapState (by user key)."""

    __slots__ = ("_entries", "_loans", "namespace", "table")

    def __init__(self, loans: Loans, table: StateTable, namespace: Hashable) -> None:
        self._loans, self.table, self.namespace = loans, table, namespace
        #: entry -> (the state's own value, what user code has)
        self._entries: dict[Any, tuple[Any, Any]] = {}

    def lend(self, entry: Any, own: Any) -> Any:
        """`Loan.lend` for an entry."""
        pair = self._entries.get(entry)
        if pair is not None and pair[0] is own:
            return pair[1]
        lent = detached(own)
        if lent is not own:
            self._loans.begin(self)
            self._entries[entry] = own, lent
        return lent

    def give(self, entry: Any, value: Any) -> None:
        """`Loan.give` for an entry."""
        self._loans.begin(self, value)
        self._entries[entry] = value, value

    def settle(self, key: Any) -> None:
        """Take back what was lent of the state of a key."""
        entries, self._entries = self._entries, {}
        table: Any = self.table
        changed: dict[Any, Any] = {}
        for entry in list(entries):
            own, lent = entries.pop(entry)
            if table.entry_in_memory(self.namespace, key, entry) is not own:
                continue
            if own is lent:
                # the table refers to it, too
                del own
                taken = handed_over(lent, 1)
                if taken is not lent:
                    table.replace(self.namespace, key, entry, taken)
                    self._loans.watch(table, taken, lent)
            elif differs(own, lent):
                del own
                changed[entry] = taken = handed_over(lent)
                self._loans.watch(self.table, taken, lent)
            elif not self._loans.watches_enough:
                self._loans.watch(table, own, lent)
        if changed:
            table.put_changed(self.namespace, key, changed)

    def forget(self) -> None:
        """End the loan without a look at it."""
        self._entries = {}


class Loans:
    """The loans of one backend."""

    def __init__(self, backend: KeyedStateBackend) -> None:
        self._backend = backend
        #: the loans of the running call; always one object, for hot loops
        self.open: list[Loan | EntryLoan] = []
        self._key: Any = None
        #: id of an object that user code had in a call -> (state name, the state's value at the end of that call, it)
        self._watched: dict[int, tuple[str, Any, Any]] = {}
        #: whether no more objects are watched
        self.watches_enough = False
        self._warned: set[str] = set()

    def enter(self, key: Any) -> None:
        """End the running call, and set the key of the next one."""
        if self.open:
            self.settle()
        self._backend.current_key = key

    def begin(self, loan: Loan | EntryLoan, given: Any = None) -> None:
        """Note that something was lent; ``given``: an object that user code has put into state."""
        open_, key = self.open, self._backend.current_key
        if open_ and self._key is not key:
            self.settle()
        if loan not in open_:
            open_.append(loan)
            self._key = key
        if given is not None and self._watched:
            self._watched.pop(id(given), None)

    def of_table(self, made: Any, table: StateTable) -> Any:
        """The loan of a state in the void namespace, shared by all of its handles."""
        if table.loan is None:
            table.loan = made(self, table, VOID_NAMESPACE)
        return table.loan

    def of(self, made: Any, table: StateTable, namespace: Hashable) -> Any:
        """The loan of a state in the running call, ``made`` (a class) if there is none."""
        for loan in self.open:
            if loan.table is table and loan.namespace == namespace:
                return loan
        return made(self, table, namespace)

    def settle(self) -> None:
        """End the call: write what it has changed in place."""
        for loan in self.open:
            loan.settle(self._key)
        self.open.clear()

    def forget(self) -> None:
        """End a call that has failed: what it has changed in place does not count."""
        for loan in self.open:
            loan.forget()
        self.open.clear()

    def watch(self, table: StateTable, own: Any, lent: Any) -> None:
        """Look later whether an object that user code had was changed after its call. Accumulators and reduced values
        are not watched: the functions that fold them may change the state's own value."""
        if not self.watches_enough and table.kind in ("value", "list", "map"):
            self._watched[id(lent)] = table.name, own, lent
            self.watches_enough = len(self._watched) >= _MOST_WATCHED

    def look(self) -> None:
        """End the call, and warn of objects that were changed after theirs: the state does not have these changes. To
        be called between batches."""
        if self.open:
            self.settle()
        if not self._watched:
            return
        watched, self._watched = self._watched, {}
        while watched:
            _, (name, own, lent) = watched.popitem()
            if differs(own, lent):
                if name not in self._warned:
                    self._warned.add(name)
                    _LOG.warning(
                        "%s: an object that was read from state %r, or put into it, was changed after the call for its "
                        "key had ended, and the state does not have the change: call update() or put() with it",
                        self._backend.where,
                        name,
                    )
            elif handed_over(lent) is not lent:
                # somebody keeps it
                self._watched[id(lent)] = name, own, lent
        self.watches_enough = len(self._watched) >= _MOST_WATCHED


def differs(own: Any, lent: Any) -> bool:
    """Whether something was changed in a value that was lent. ``own`` is what it was copied from: parts that cannot
    change are the same objects in both. What cannot be compared counts as changed.

    >>> own = {"a": [1, 2.5]}; lent = detached(own); unchanged = differs(own, lent); lent["a"][0] = True
    >>> unchanged, differs(own, lent)
    (False, True)
    """
    try:
        if own.__class__ is dict and lent.__class__ is dict and all(map(is_, own.values(), lent.values())):
            return len(own) != len(lent) or not all(map(is_, own, lent))
        try:
            return _differs(own, lent)
        except RecursionError:  # it may hold itself
            return pickle.dumps(own, 5) != pickle.dumps(lent, 5)
    except Exception:
        return True


def _differs(own: Any, lent: Any) -> bool:
    if own is lent:
        return False
    cls = own.__class__
    if cls is not lent.__class__ or cls in SHARED:
        return True
    if cls is dict:
        return len(own) != len(lent) or not all(map(is_, own, lent)) or _any_differs(own.values(), lent.values())
    if cls is list or issubclass(cls, tuple):
        return len(own) != len(lent) or _any_differs(own, lent)
    if cls is set:
        return set(map(id, own)) != set(map(id, lent))
    if cls is Row:
        return own._row_kind is not lent._row_kind or _any_differs(
            (getattr(own, "_fields", None), own._values), (getattr(lent, "_fields", None), lent._values)
        )
    if copies_attributes(cls):
        return _differs(vars(own), vars(lent))
    return _remade_differ(own.__reduce_ex__(4), lent.__reduce_ex__(4))


def _any_differs(own: Iterable[Any], lent: Iterable[Any]) -> bool:
    return any(one is not other and _differs(one, other) for one, other in zip(own, lent))


def _remade_differ(own: Any, lent: Any) -> bool:
    """`_differs` for what `copy` would make objects of, parts of which are made anew each time."""
    if own is lent:
        return False
    cls = own.__class__
    if cls is not lent.__class__:
        return True
    if cls in (str, bytes, int, float, complex):
        return bool(own != lent)
    if cls is dict:
        own, lent = list(own.items()), list(lent.items())
    elif cls is not tuple and cls is not list:
        if not hasattr(cls, "__next__"):
            return _differs(own, lent)
        own, lent = list(own), list(lent)
    return len(own) != len(lent) or any(map(_remade_differ, own, lent))
