"""Describes an operator with ``on_error`` and makes it. The job graph knows guarded operators by this module alone."""

from __future__ import annotations

from dataclasses import dataclass

from flinkish.core.error_handling import OnError
from flinkish.runtime.operator import OperatorFactory
from flinkish.runtime.operators.async_wait import AsyncWaitOperator
from flinkish.runtime.operators.guarded import GuardedOperator
from flinkish.runtime.operators.guarded_async import GuardedAsyncOperator
from flinkish.runtime.operators.guarded_window import GuardedWindowOperator
from flinkish.runtime.operators.window.window_operator_factory import WindowOperatorFactory


@dataclass
class GuardedFactory:
    """Makes guarded operators.

    ``factory`` is that of the operator that is guarded; it also gives the properties that the job graph asks for.
    """

    factory: OperatorFactory
    on_error: OnError
    guarded: bool = True

    @property
    def has_operator_state(self) -> bool:
        return self.factory.has_operator_state

    @property
    def keyed(self) -> bool:
        return self.factory.keyed

    @property
    def watermark_sensitive(self) -> bool:
        return self.factory.watermark_sensitive

    @property
    def merges_windows(self) -> bool:
        return self.factory.merges_windows

    @property
    def has_timers(self) -> bool:
        """As for the operator inside."""
        return self.factory.has_timers

    @property
    def uses_processing_time(self) -> bool:
        return self.factory.uses_processing_time

    @property
    def takes_misfits(self) -> bool:
        return self.factory.takes_misfits

    @property
    def forwards_records(self) -> bool:
        return self.factory.forwards_records

    @property
    def reads_timestamps(self) -> bool:
        return True  # a dead letter has the timestamp of its record

    def create(self) -> GuardedOperator:
        """A new guarded operator, of the class that fits the operator that it guards."""
        if isinstance(self.factory, WindowOperatorFactory):
            return GuardedWindowOperator(self.factory.create_by_record(), self.on_error)
        inner = self.factory.create()
        if isinstance(inner, AsyncWaitOperator):
            return GuardedAsyncOperator(inner, self.on_error)
        return GuardedOperator(inner, self.on_error)
