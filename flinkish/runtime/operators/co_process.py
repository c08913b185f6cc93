"""``process`` on connected streams without keys: calls a CoProcessFunction, which has access to time and side
outputs."""

from __future__ import annotations

from dataclasses import dataclass

from flinkish.core.co_functions import CoProcessFunction
from flinkish.runtime.operator import OperatorFactoryBase
from flinkish.runtime.operators.process import ProcessOperator
from flinkish.runtime.outputs import Converter


@dataclass
class CoProcessFactory(OperatorFactoryBase):
    """Makes the operator of ``process`` on connected streams without keys.

    ``converter`` converts the results of a batch to the declared type of the main output.
    """

    function: CoProcessFunction
    converter: Converter | None = None
    #: the function can ask for the current watermark at each record
    watermark_sensitive: bool = True

    def create(self) -> ProcessOperator:
        return ProcessOperator(self.function, "process_element1", self.converter, "process_element2")
