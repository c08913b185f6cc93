"""Windows with ``on_error``: keyed ones, those of all records, joins and co-groups.

A record fails when the assigner, the fold, the trigger or what the trigger fires raises for it: it is in none of its
windows then. A window fails when one of its timers does: what the trigger and the window function have done is undone,
the timer is gone, and the dead letter names key and window. A window that was to end with that timer ends: what it
keeps is cleared, as if its function had given nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from flinkish.core.time_domain import TimeDomain
from flinkish.runtime.list_keys import thawed
from flinkish.runtime.operators.guarded import GuardedOperator
from flinkish.runtime.operators.window.window_operator import WindowOperator

#: As many results of windows that fire at one watermark are held back at most.
_MOST_HELD = 10_000


class GuardedWindowOperator(GuardedOperator):
    """See the module."""

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
        """Call it; if it fails, undo it and return why."""
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
        """Clear the window whose timer has failed, if it was to end with it. If user code fails in that, too, the state
        of the window goes without it."""
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
