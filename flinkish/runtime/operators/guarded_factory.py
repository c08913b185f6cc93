"""Describes an operator with ``on_error`` and makes it; the guarded operators of asynchronous calls and of windows are
here, too. The job graph knows guarded operators by this module alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from flinkish.common.detach import detached
from flinkish.core.checkpointed_function import OnError
from flinkish.core.time import TimeDomain
from flinkish.runtime.exchange.keys import thawed
from flinkish.runtime.job.operator import OperatorFactory
from flinkish.runtime.operators.async_wait import AsyncWaitOperator, Call
from flinkish.runtime.operators.guarded import GuardedOperator
from flinkish.runtime.operators.window.factory import WindowOperatorFactory
from flinkish.runtime.operators.window.window_operator import WindowOperator


class GuardedAsyncOperator(GuardedOperator):
    """Guards an `AsyncWaitOperator` by the rules of `OnError`, call by call: a call that fails, or is out of time,
    after all of its retries becomes a dead letter or is skipped. The results of the others are emitted in the order
    that was asked for; a dead letter is emitted when it is the turn of its call.

    The function gets a copy of its record for each attempt and for ``timeout``, so a dead letter carries the record as
    it came. No state is undone: calls run concurrently, so a change of state could not be assigned to one of them.
    """

    _inner: AsyncWaitOperator

    def guard_calls(self) -> None:
        inner = self._inner
        call, timeout, hand_on = inner.call, inner.timeout, inner.hand_on
        inner.keeps_failed = True
        inner.call = lambda value: call(detached(value))
        inner.timeout = lambda value: timeout(detached(value))

        def hand_on_each(calls: list[Call]) -> None:
            failed = sum(not self._hand_on(each, hand_on) for each in calls)
            self._consumed.add(len(calls) - failed)
            self._diverted.add(failed)
            self._held.flush()

        inner.hand_on = hand_on_each  # type: ignore[method-assign]

    def _hand_on(self, call: Call, hand_on: Any) -> bool:
        """Emit the results of one call, or report its failure. Returns whether it has succeeded."""
        self._held.mark()
        try:
            if call.error is not None:
                raise call.error
            if call.results:
                hand_on([call])
        except Exception as error:
            self._undo(error)
            self._failed(error, call.value, self._key_of(call.value, 0), call.timestamp_ms)
            return False
        self._budget.succeeded()
        return True

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        self._received.add(len(values))
        self._inner.process_batch(values, timestamps, input_index)


#: When so many results of windows that fire at one watermark are held back, they are emitted.
_MOST_HELD = 10_000


class GuardedWindowOperator(GuardedOperator):
    """Guards a `WindowOperator` by the rules of `OnError`, record by record and timer by timer: that of keyed windows,
    of windows of all records, of window joins and co-groups.

    A record fails if the assigner, the fold, the trigger or the window function that the trigger fires raises for it:
    it is then in none of its windows. A window fails if one of its timers does: the effects of the trigger and of the
    window function are undone, the timer is gone, and the dead letter names key and window. If the window was to end
    with that timer, it ends: its state is cleared, as if its function had given no results.
    """

    _inner: WindowOperator

    def guard_calls(self) -> None:
        inner = self._inner
        on_timer = inner.on_timer

        def call(domain: TimeDomain, timer_ms: int, key: Any, namespace: Hashable) -> None:
            error = self._attempt(lambda: on_timer(domain, timer_ms, key, namespace))
            if error is None:
                self._budget.succeeded()
            else:
                self._timers_failed.add(1)
                self._failed(error, None, thawed(key), timer_ms, domain, repr(inner.scope.window))
                self._end_window(domain, timer_ms, key, namespace)
            if len(self._held) >= _MOST_HELD:
                self._held.flush()

        inner.on_timer = call  # type: ignore[method-assign]

    def _attempt(self, call: Callable[[], None]) -> Exception | None:
        """Make a call. If it fails, undo it and return the error."""
        self._held.mark()
        self._log.begin()
        try:
            call()
            self._inner.write_back()
            self._inner.results.flush()
        except Exception as error:
            self._undo(error)
            return error
        self._log.commit()
        return None

    def _end_window(self, domain: TimeDomain, timer_ms: int, key: Any, namespace: Hashable) -> None:
        """Clear the window whose timer has failed, if it was to end with that timer. If user code fails in clearing,
        too, the state of the window is removed without calling user code."""
        inner = self._inner
        if not (inner.enter_timer(key, namespace) and inner.ends_window(domain, timer_ms)):
            return
        if self._attempt(inner.clean_up) is not None and inner.enter_timer(key, namespace):
            inner.remove_window()
            inner.write_back()
            inner.scope.backend.remove_namespace(namespace)

    def _undo(self, error: Exception) -> None:
        self._inner.results.take_back()
        self._inner.drop_unwritten()
        super()._undo(error)


@dataclass
class GuardedFactory:
    """Makes guarded operators.

    ``factory`` is that of the operator that is guarded; it also gives the properties that the job graph asks for.
    """

    factory: OperatorFactory
    on_error: OnError
    guarded: bool = True

    @property
    def has_operator_state(self) -> bool:
        return self.factory.has_operator_state

    @property
    def keyed(self) -> bool:
        return self.factory.keyed

    @property
    def watermark_sensitive(self) -> bool:
        return self.factory.watermark_sensitive

    @property
    def merges_windows(self) -> bool:
        return self.factory.merges_windows

    @property
    def has_timers(self) -> bool:
        """As for the operator inside."""
        return self.factory.has_timers

    @property
    def uses_processing_time(self) -> bool:
        return self.factory.uses_processing_time

    @property
    def takes_misfits(self) -> bool:
        return self.factory.takes_misfits

    @property
    def forwards_records(self) -> bool:
        return self.factory.forwards_records

    @property
    def reads_timestamps(self) -> bool:
        return True  # a dead letter has the timestamp of its record

    def create(self) -> GuardedOperator:
        """A new guarded operator, of the class that fits the operator that it guards."""
        if isinstance(self.factory, WindowOperatorFactory):
            return GuardedWindowOperator(self.factory.create_by_record(), self.on_error)
        inner = self.factory.create()
        if isinstance(inner, AsyncWaitOperator):
            return GuardedAsyncOperator(inner, self.on_error)
        return GuardedOperator(inner, self.on_error)
