"""Windows with ``on_error``: keyed windows, windows of all records, window joins and co-groups.

A record fails if the assigner, the fold, the trigger or the window function that the trigger fires raises for it: it is
then in none of its windows. A window fails if one of its timers does: the effects of the trigger and of the window
function are undone, the timer is gone, and the dead letter names key and window. If the window was to end with that
timer, it ends: its state is cleared, as if its function had given no results.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from flinkish.core.time_domain import TimeDomain
from flinkish.runtime.exchange.keys import thawed
from flinkish.runtime.operators.guarded import GuardedOperator
from flinkish.runtime.operators.window.window_operator import WindowOperator

#: When so many results of windows that fire at one watermark are held back, they are emitted.
_MOST_HELD = 10_000


class GuardedWindowOperator(GuardedOperator):
    """Guards a `WindowOperator` by the rules of `OnError`, record by record and timer by timer."""

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
