"""A fence that falls when a test says so: another driver has taken the job over."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from flinkish.errors import FencedError

_tokens = count(1)


class FallingFence:
    """Passes ``passes`` checks and then no more; ``then`` is called at the check that fails, before it does."""

    def __init__(self, passes: int = 0, then: Callable[[], object] | None = None) -> None:
        #: differs for each fence, as that of each driver does
        self.token = next(_tokens)
        self.passes = passes
        self.checks = 0
        self._then = then

    def check(self) -> None:
        self.checks += 1
        if self.checks > self.passes:
            if self._then is not None:
                self._then()
            raise FencedError("another driver has taken over")
