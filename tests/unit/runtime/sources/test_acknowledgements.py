"""Sources hear up to which positions their splits have been read for good."""

from __future__ import annotations

import json
from collections.abc import Mapping
from queue import Queue

from flinkish.core.source import SourceLimits
from flinkish.runtime.epoch.steps import Acknowledgements
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.sources.job_enumerator import JobEnumerator
from flinkish.runtime.sources.split_list import SegmentsInMemory
from tests.support.lettered_source import LetteredSource
from tests.unit.runtime.sources.test_planning import job_of

TIMEOUT_S = 30


class ListeningSource(LetteredSource):
    """Puts what it hears into a queue; the second call fails."""

    calls = 0
    heard: Queue[dict[str, int]] = Queue()

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        type(self).calls += 1
        self.heard.put(dict(positions))
        if self.calls == 2:
            raise ConnectionError("on purpose")


def test_source_hears_of_each_position_once_also_if_one_split_is_open_for_long_and_again_after_a_failure() -> None:
    sizes = {"long": 9} | dict.fromkeys("abcdef", 2)
    job, store = job_of(ListeningSource(sizes), 2, SourceLimits(max_records=4)), SegmentsInMemory()
    enumerator, acknowledgements = JobEnumerator(job, store, ManualClock()), Acknowledgements(job, store)
    offset = enumerator.next_offset({})
    heard = []
    while True:
        acknowledgements.committed(json.dumps(offset))
        heard.append(ListeningSource.heard.get(timeout=TIMEOUT_S))
        after = enumerator.next_offset(offset)
        if after == offset:
            break
        offset = after
    acknowledgements.close()
    assert len(heard) > 3 and heard[1].keys() <= heard[2].keys(), "what it could not take in is repeated"
    every = [*heard[0].items(), *(entry for positions in heard[2:] for entry in positions.items())]
    assert len(every) == len(set(every))
    assert dict(every) == sizes
