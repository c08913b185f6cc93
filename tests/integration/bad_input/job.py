"""The job of these tests: events are counted per user, exactly once, whatever goes wrong in between.

Its parts can be replaced one by one by a wrong one; the job directory stays the same.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flinkish.common import Configuration, Types, WatermarkStrategy
from flinkish.common.typeinfo import TypeInformation
from flinkish.connectors.generated import DataGeneratorSource
from flinkish.connectors.results import NAMED, CollectSink, register_collector, unregister_collector
from flinkish.core.source import Source
from flinkish.datastream import StreamExecutionEnvironment

COUNT = 40
PER_EPOCH = 10
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])

_numbers = itertools.count()


def event(index: int) -> dict[str, Any]:
    return {"user": f"user-{index % 3}", "index": index}


def pair(record: dict[str, Any]) -> tuple[Any, Any]:
    return (record["user"], 1)


def first(record: tuple[Any, Any]) -> Any:
    return record[0]


def same(record: Any) -> Any:
    return record


class Job:
    """A job directory, and what its runs have sent to the sink."""

    def __init__(self, folder: Path) -> None:
        self.directory = folder / "job"
        self.rows: list[Any] = []
        self._name = f"bad-input-{next(_numbers)}"
        self.collect(self.rows.extend)

    def collect(self, callback: Callable[[list[Any]], None]) -> None:
        """Replace what is done with the rows; it knows nothing of the epochs that the one before it has got."""
        register_collector(self._name, NAMED, callback)

    def close(self) -> None:
        unregister_collector(self._name, NAMED)

    def environment(self, settings: dict[str, str] | None = None) -> StreamExecutionEnvironment:
        values = {
            "flinkish.job.dir": str(self.directory),
            # no checkpoints, and so no restarts
            "execution.checkpointing.interval": "0 s",
            "flinkish.progress": "never",
            "flinkish.history.enabled": "false",
            "parallelism.default": "2",
            "pipeline.max-parallelism": "2",
            **(settings or {}),
        }
        configuration = Configuration()
        for key, value in values.items():
            configuration.set_string(key, value)
        return StreamExecutionEnvironment.get_execution_environment(configuration)

    def run(self, **parts: Any) -> None:
        """One run with these parts in place of the right ones, to its end or its failure."""
        self.build(**parts).execute("shop")

    def build(
        self,
        source: Source | None = None,
        to_pair: Callable[[Any], Any] = pair,
        pair_type: TypeInformation | None = None,
        key: Callable[[Any], Any] = first,
        uids: tuple[str, str] = ("pairs", "counts"),
        settings: dict[str, str] | None = None,
        sink: Any = None,
        after: Callable[[Any], Any] = same,
    ) -> StreamExecutionEnvironment:
        """The environment with the program."""
        env = self.environment(settings)
        given = source or DataGeneratorSource(event, COUNT, records_per_epoch=PER_EPOCH)
        events = env.from_source(given, WatermarkStrategy.no_watermarks(), "events").uid("events")
        pairs = events.map(to_pair, output_type=pair_type).uid(uids[0])
        counts = pairs.key_by(key).sum(1).uid(uids[1]).map(after).uid("after")
        counts.sink_to(sink or CollectSink(self._name)).uid("sink")
        return env

    @staticmethod
    def expected(totals: dict[Any, int] | None = None) -> list[tuple[Any, int]]:
        """The running counts: by default those of all events."""
        totals = totals or dict(Counter(event(index)["user"] for index in range(COUNT)))
        return [(user, n) for user, total in totals.items() for n in range(1, total + 1)]

    def check_complete(self, totals: dict[Any, int] | None = None) -> None:
        """Each event was counted once, in all runs together."""
        assert sorted(self.rows, key=repr) == sorted(self.expected(totals), key=repr)
