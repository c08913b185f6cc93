"""Asynchronous calls with ``on_error``: a call that fails, or is out of time, after all of its retries becomes a dead
letter or is skipped. The results of the others are emitted in the order that was asked for; a dead letter is emitted
when it is the turn of its call.

The function gets a copy of its record for each attempt and for ``timeout``, so a dead letter carries the record as
it came. No state is undone: calls run concurrently, so a change of state could not be assigned to one of them.
"""

from __future__ import annotations

from typing import Any

from flinkish.common.detach import detached
from flinkish.runtime.operators.async_wait import AsyncWaitOperator, Call
from flinkish.runtime.operators.guarded import GuardedOperator


class GuardedAsyncOperator(GuardedOperator):
    """Guards an `AsyncWaitOperator` by the rules of `OnError`, call by call, in the order in which results are
    emitted."""

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
