"""The samples of stacks of which the flame graphs of a job are made: asked for when somebody looks, and not more often
than ``rest.flamegraph.refresh-interval`` says (``runtime/task/stack_samples.py``).
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable

from flinkish.common import Configuration
from flinkish.common.options import rest
from flinkish.errors import FlinkishError
from flinkish.runtime.task.stack_samples import SampleBoard, SampleRequest, StackSamples

#: What is there before any stack was sampled.
NO_SAMPLES = StackSamples("", 0, ())


class FlameGraphs:
    """The newest samples of the tasks of one job. Any thread may use it."""

    def __init__(self, configuration: Configuration, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._refresh_ms = max(configuration.get(rest.FLAMEGRAPH_REFRESH_INTERVAL).to_millis(), 1_000)
        self._samples = configuration.get(rest.FLAMEGRAPH_NUM_SAMPLES)
        self._delay_ms = max(configuration.get(rest.FLAMEGRAPH_DELAY).to_millis(), 1)
        self._depth = configuration.get(rest.FLAMEGRAPH_STACK_DEPTH)
        self._lock = threading.Lock()
        self._asked: str = ""
        self._asked_s = 0.0
        self._found = NO_SAMPLES

    def look(self, board: SampleBoard) -> StackSamples:
        """The samples that there are, of all workers together. New ones are asked for if these have become old."""
        with self._lock:
            now_s = self._clock_s()
            try:
                self._found = self._together(board.samples()) or self._found
                if not self._asked or now_s - self._asked_s >= self._refresh_ms / 1000:
                    self._asked, self._asked_s = uuid.uuid4().hex, now_s
                    within_ms = max(self._refresh_ms, self._samples * self._delay_ms)
                    board.ask(SampleRequest(self._asked, self._samples, self._delay_ms, within_ms, self._depth))
            except (FlinkishError, OSError):
                # storage that is away: what was seen before is shown, and it is asked again later
                pass
            return self._found

    def _together(self, samples: list[StackSamples]) -> StackSamples | None:
        here = [one for one in samples if one.request == self._asked]
        if not here:
            return None
        stacks = tuple(stack for one in here for stack in one.stacks)
        return StackSamples(self._asked, max(one.end_ms for one in here), stacks)
