"""Rolling reduce in BATCH mode: one result per key, at the end of the input (PyFlink's reduce in BATCH mode).

PyFlink registers a timer at the end of time for each key; here the state itself says which keys there are. Results
come in the order in which their keys were first seen, with the timestamp of that timer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flinkish.core.time_limits import MAX_WATERMARK_MS
from flinkish.runtime.operator import OperatorFactoryBase, StreamOperator
from flinkish.runtime.operators.reduce import REDUCE_STATE, ReduceFactory, ReduceOperator
from flinkish.runtime.operators.rolling_aggregations import RollingAggregationFactory, RollingAggregationOperator
from flinkish.runtime.state.keyed_state_backend import VOID_NAMESPACE


class FinalReduceOperator(ReduceOperator):
    """Keeps the rolling results to itself."""

    def collect(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Not yet: a later record may change the result."""

    def process_watermark(self, watermark_ms: int) -> None:
        """The last watermark of the bounded input: all results are final."""
        if watermark_ms == MAX_WATERMARK_MS:
            reduced = self.keyed_state.table(REDUCE_STATE, "reducing").existing(VOID_NAMESPACE) or {}
            super().collect(list(reduced.values()), [MAX_WATERMARK_MS] * len(reduced))
        super().process_watermark(watermark_ms)


class FinalRollingAggregationOperator(FinalReduceOperator, RollingAggregationOperator):
    """The same for ``sum``, ``min``, ``max``, ``min_by`` and ``max_by``."""


@dataclass
class FinalReduceFactory(OperatorFactoryBase):
    """Makes the BATCH form of a rolling operator."""

    rolling: ReduceFactory | RollingAggregationFactory
    keyed: bool = True

    def create(self) -> StreamOperator:
        """A fresh operator."""
        if isinstance(self.rolling, ReduceFactory):
            return FinalReduceOperator(self.rolling.function, "reduce", self.rolling.converter)
        template = self.rolling.create()
        return FinalRollingAggregationOperator(template.function, "reduce", template.converter)
