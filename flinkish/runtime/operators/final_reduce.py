"""Rolling reduce in BATCH mode: one result per key, at the end of the input (PyFlink's reduce in BATCH mode).

As in PyFlink, each key has an event-time timer at the maximum watermark: results come in the order in which their keys
were first seen, with the timestamp of that timer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flinkish.common.detach import detached
from flinkish.core.time_domain import TimeDomain
from flinkish.core.time_limits import MAX_WATERMARK_MS
from flinkish.runtime.exchange.keys import keys_of
from flinkish.runtime.operator import OperatorFactoryBase, StreamOperator
from flinkish.runtime.operators.reduce import REDUCE_STATE, ReduceFactory, ReduceOperator
from flinkish.runtime.operators.rolling_aggregations import RollingAggregationFactory, RollingAggregationOperator
from flinkish.runtime.state.state_rows import VOID_NAMESPACE

#: Name of the timer service.
TIMER_SERVICE = "final-results"

#: The number of results that are emitted as one batch.
_BATCH = 10_000


class FinalReduceOperator(ReduceOperator):
    """Reduces the records of each key and emits the result at the end of the input; emits no rolling results."""

    def collect(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Drop rolling results: a later record may change them."""

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        keys = keys_of(self.context.key_selectors[input_index], values)
        self.keyed_state.timers(TIMER_SERVICE).register_all(TimeDomain.EVENT_TIME, MAX_WATERMARK_MS, keys)
        super().process_batch(values, timestamps, input_index)

    def process_watermark(self, watermark_ms: int) -> None:
        """Emit all results, which are final, at the last watermark of the bounded input."""
        if watermark_ms == MAX_WATERMARK_MS:
            table = self.keyed_state.table(REDUCE_STATE, "reducing")
            results: list[Any] = []
            for _, key, _ in self.keyed_state.due(TIMER_SERVICE, TimeDomain.EVENT_TIME, watermark_ms):
                table.fetch(VOID_NAMESPACE, (key,))
                results.append(detached(table.namespace(VOID_NAMESPACE)[key]))
                if len(results) == _BATCH:
                    super().collect(results, [MAX_WATERMARK_MS] * len(results))
                    results = []
            super().collect(results, [MAX_WATERMARK_MS] * len(results))
        super().process_watermark(watermark_ms)


class FinalRollingAggregationOperator(FinalReduceOperator, RollingAggregationOperator):
    """`FinalReduceOperator` for ``sum``, ``min``, ``max``, ``min_by`` and ``max_by``."""


@dataclass
class FinalReduceFactory(OperatorFactoryBase):
    """Makes the operator that a rolling one becomes in BATCH mode."""

    rolling: ReduceFactory | RollingAggregationFactory
    keyed: bool = True
    reads_timestamps: bool = False

    def create(self) -> StreamOperator:
        """A fresh operator."""
        if isinstance(self.rolling, ReduceFactory):
            return FinalReduceOperator(self.rolling.function, "reduce", self.rolling.converter)
        template = self.rolling.create()
        return FinalRollingAggregationOperator(template.function, "reduce", template.converter)
