"""Describes a window operator and makes it. The API uses window operators through this module alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flinkish.core.window.assigner import WindowAssigner
from flinkish.core.window.evictor import Evictor
from flinkish.core.window.merging_assigner import MergingWindowAssigner
from flinkish.core.window.trigger import Trigger, traits_of
from flinkish.errors import ProgramError
from flinkish.runtime.operators.window.aligned_event_time_operator import AlignedEventTimeOperator
from flinkish.runtime.operators.window.merging_window_operator import MergingWindowOperator
from flinkish.runtime.operators.window.session_event_time_operator import SessionEventTimeOperator
from flinkish.runtime.operators.window.window_operator import WindowOperator
from flinkish.runtime.outputs import Converter
from flinkish.runtime.windowing.window_logic import WindowLogic


@dataclass
class WindowOperatorFactory:
    """Describes the windows of one windowed stream and makes their operator. Picklable by cloudpickle. A stream without
    keys runs under a constant key.

    Raises:
        ProgramError: the allowed lateness is negative.
    """

    assigner: WindowAssigner[Any, Any]
    #: the program's trigger, or the assigner's default one
    trigger: Trigger[Any, Any]
    window_logic: WindowLogic
    allowed_lateness_ms: int = 0
    #: side output for late elements; None: they are dropped and counted in ``numLateRecordsDropped``
    late_tag_id: str | None = None
    #: converts results to the output type; None: there is nothing to convert
    converter: Converter | None = None
    #: removes elements from windows that fire; None: all elements stay
    evictor: Evictor[Any] | None = None

    keyed: bool = field(default=True, init=False)
    has_operator_state: bool = field(default=False, init=False)
    guarded: bool = field(default=False, init=False)
    takes_misfits: bool = field(default=True, init=False)
    forwards_records: bool = field(default=False, init=False)
    reads_timestamps: bool = field(default=True, init=False)
    watermark_sensitive: bool = field(init=False)
    merges_windows: bool = field(init=False)
    uses_processing_time: bool = field(init=False)
    has_timers: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.allowed_lateness_ms < 0:
            raise ProgramError(
                f"an allowed lateness of {self.allowed_lateness_ms} ms", expected="a lateness of 0 ms or more"
            )
        traits = traits_of(self.trigger)
        self.watermark_sensitive = traits.sees_watermarks
        self.merges_windows = isinstance(self.assigner, MergingWindowAssigner) and self.assigner.is_event_time()
        self.uses_processing_time = traits.uses_processing_time or self.assigner.needs_processing_time()

    def create_by_record(self) -> WindowOperator:
        """A new operator that works record by record and timer by timer. Its state has the same form as that of
        `create`."""
        return MergingWindowOperator(self) if isinstance(self.assigner, MergingWindowAssigner) else WindowOperator(self)

    def create(self) -> WindowOperator:
        """A new operator: the fastest one that can process these windows."""
        if SessionEventTimeOperator.handles(self):
            return SessionEventTimeOperator(self)
        if AlignedEventTimeOperator.handles(self):
            return AlignedEventTimeOperator(self)
        return self.create_by_record()
