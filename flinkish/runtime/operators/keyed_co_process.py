"""``process`` on connected keyed streams: calls a KeyedCoProcessFunction (or a CoProcessFunction, which Java Flink
allows there, too), which has access to time and side outputs, and to state and timers that both inputs share."""

from __future__ import annotations

from dataclasses import dataclass

from flinkish.core.co_functions import CoProcessFunction, KeyedCoProcessFunction
from flinkish.runtime.operator import OperatorFactoryBase
from flinkish.runtime.operators.keyed_process import KeyedProcessOperator, overrides_on_timer
from flinkish.runtime.outputs import Converter


@dataclass
class KeyedCoProcessFactory(OperatorFactoryBase):
    """Makes the operator of ``process`` on connected keyed streams.

    ``converter`` converts the results of a batch to the declared type of the main output.
    """

    function: KeyedCoProcessFunction | CoProcessFunction
    converter: Converter | None = None
    keyed: bool = True
    watermark_sensitive: bool = True

    @property
    def has_timers(self) -> bool:  # type: ignore[override]
        """Whether the function does anything when a timer fires."""
        kind = KeyedCoProcessFunction if isinstance(self.function, KeyedCoProcessFunction) else CoProcessFunction
        return overrides_on_timer(self.function, kind)

    def create(self) -> KeyedProcessOperator:
        methods = "process_element1", self.converter, "process_element2"
        return KeyedProcessOperator(self.function, *methods, in_stretches=True)
