"""Decides whether a failed job is restarted: first by the class of the failure, then by the restart strategy.

Rule: a failure that cannot go away by itself is never retried, whatever the strategy; nor is one that only another
driver can recover from. The error of a job that is not restarted says why.
"""

from __future__ import annotations

from flinkish.errors import FlinkishError, escaped
from flinkish.jobmanager.restart.strategy import RestartStrategy, seconds

#: The most characters of a failure that is shown in one line.
_LINE = 400


class Restarts:
    """Decides about the restarts of one job in one driver, and counts them."""

    def __init__(self, strategy: RestartStrategy) -> None:
        self._strategy = strategy
        #: number of restarts so far
        self.made = 0

    def delay_after(self, failure: FlinkishError) -> int | None:
        """Milliseconds until the restart; None: the failure is final, and its hint now says why."""
        refusal = _refusal(failure)
        if refusal is None:
            delay_ms = self._strategy.delay_after(failure)
            if delay_ms is not None:
                self.made += 1
                return delay_ms
            refusal = f"the restart strategy allows no more ({self._strategy.describe()})"
        # without a restart strategy there is no need to say why the job is not restarted
        if self.made or self._strategy.limit != 0:
            told = f"not started again, after {_times(self.made)}: {refusal}"
            failure.hint = "; ".join(part for part in (failure.hint, told) if part)
        return None

    def line(self, error: str, delay_ms: int) -> str:
        """One line about a failure, with its ``error``, that is followed by a restart; to be called after
        `delay_after`."""
        limit = self._strategy.limit
        count = f"restart {self.made}" + (f" of {limit}" if limit is not None else "")
        strategy = self._strategy.describe().partition(":")[0]
        return f"failed: {error}; restarting in {seconds(delay_ms)} ({count}, restart-strategy {strategy})"


def _refusal(failure: FlinkishError) -> str | None:
    if not failure.retryable:
        return f"{type(failure).__name__} does not go away by itself"
    if failure.needs_new_driver:
        return "only a new driver can go on; its supervisor may start one"
    return None


def _times(count: int) -> str:
    return f"{count} restart{'s'[: count != 1]}"


def one_line(failure: FlinkishError) -> str:
    """A failure in one line, without its traceback and its hint.

    >>> one_line(FlinkishError("the disk is full", where="epoch 3", hint="make room"))
    'FlinkishError: the disk is full [epoch 3]'
    """
    where = f" [{failure.where}]" if failure.where else ""
    text = escaped(" ".join(f"{failure.what}{where}".split()))
    if len(text) > _LINE:
        text = text[: _LINE - 3] + "..."
    return f"{type(failure).__name__}: {text}"
