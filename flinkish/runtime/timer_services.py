"""The timer services that user functions get from ``ctx.timer_service()``. The current times are the operator's
watermark and the processing time of the epoch; nothing here reads a clock."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any, NoReturn

from flinkish.common.arguments import abbreviated, kind_of
from flinkish.core.time_domain import TimeDomain
from flinkish.core.time_limits import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.core.timer_service import TimerService
from flinkish.errors import ArgumentTypeError, StateAccessError, TypeMismatchError
from flinkish.runtime.exchange.buffer import EpochInfo
from flinkish.runtime.state.backend import KeyedStateBackend


class NonKeyedTimerService(TimerService):
    """The timer service of a stream that is not keyed: it tells the time and refuses timers with StateAccessError."""

    def __init__(self, epoch: EpochInfo, where: str) -> None:
        self._epoch = epoch
        self._where = where

    def current_processing_time(self) -> int:
        return self._epoch.processing_time_ms

    def current_watermark(self) -> int:
        return self._epoch.watermark_ms

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._refuse("Register timers is only supported on a keyed stream.")

    def register_event_time_timer(self, timestamp: int) -> None:
        self._refuse("Register timers is only supported on a keyed stream.")

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._refuse("Deleting timers is only supported on a keyed stream.")

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._refuse("Deleting timers is only supported on a keyed stream.")

    def _refuse(self, what: str) -> NoReturn:
        raise StateAccessError(
            what, where=self._where, expected="a keyed stream", hint="call key_by() before process()"
        )


class KeyedTimerService(TimerService):
    """The timer service of a keyed stream: registers and deletes timers of the backend's current key, in the queue
    named ``service``. A timestamp that is not an integer raises a TypeError."""

    def __init__(self, epoch: EpochInfo, backend: KeyedStateBackend, service: str) -> None:
        self._epoch = epoch
        self._backend = backend
        self._service = service
        #: generation of the backend's state for which the two methods below were bound
        self._generation = -1
        self._register_event: Callable[[int, Any], None]
        self._register_processing: Callable[[int, Any], None]

    def current_processing_time(self) -> int:
        return self._epoch.processing_time_ms

    def current_watermark(self) -> int:
        return self._epoch.watermark_ms

    def register_processing_time_timer(self, timestamp: int) -> None:
        backend = self._backend
        if timestamp.__class__ is not int or not MIN_TIMESTAMP_MS <= timestamp <= MAX_WATERMARK_MS:
            timestamp = self._checked(timestamp)
        if self._generation != backend.generation:
            self._bind()
        self._register_processing(timestamp, backend.current_key)

    def register_event_time_timer(self, timestamp: int) -> None:
        backend = self._backend
        if timestamp.__class__ is not int or not MIN_TIMESTAMP_MS <= timestamp <= MAX_WATERMARK_MS:
            timestamp = self._checked(timestamp)
        if self._generation != backend.generation:
            self._bind()
        self._register_event(timestamp, backend.current_key)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._delete(TimeDomain.PROCESSING_TIME, timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._delete(TimeDomain.EVENT_TIME, timestamp)

    def _bind(self) -> None:
        """Bind the methods of the queue, which is another object after state was restored."""
        queue = self._backend.timers(self._service)
        self._register_event = queue.registrar(TimeDomain.EVENT_TIME)
        self._register_processing = queue.registrar(TimeDomain.PROCESSING_TIME)
        self._generation = self._backend.generation

    def _checked(self, timestamp: int) -> int:
        try:
            timestamp_ms = index(timestamp)
        except TypeError:
            raise ArgumentTypeError(
                f"a timer was registered for {abbreviated(timestamp)}, {kind_of(timestamp)}",
                where=self._where(),
                expected="a timestamp in ms, as an int",
                hint="round it: int(...)",
            ) from None
        if not MIN_TIMESTAMP_MS <= timestamp_ms <= MAX_WATERMARK_MS:
            raise TypeMismatchError(
                f"a timer was registered for {abbreviated(timestamp_ms)}",
                where=self._where(),
                expected="a timestamp in ms of 64 bits, as Java's long",
                hint="timestamps are milliseconds since 1970-01-01T00:00:00Z",
            )
        return timestamp_ms

    def _where(self) -> str:
        return f"{self._backend.where}, key {abbreviated(self._backend.current_key)}"

    def _delete(self, domain: TimeDomain, timestamp: int) -> None:
        backend = self._backend
        backend.timers(self._service).delete(domain, index(timestamp), backend.current_key)
