"""WatermarkStrategy: an immutable description of how a stream gets its timestamps and watermarks.

Rule upheld here: every ``with_...`` call keeps what was set before. PyFlink's ``with_idleness`` and
``with_watermark_alignment`` drop a Python timestamp assigner that was set earlier, so that records silently keep no
timestamp; that is a fault of its wrapping of Java and is not copied. The order of the calls does not matter here.
"""

from __future__ import annotations

import abc
import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from flinkish.common.arguments import accepts, check_instance, check_made, check_takes, kind_of, runs_ours
from flinkish.common.no_effect import warn_without_effect
from flinkish.common.time import Duration
from flinkish.errors import ArgumentTypeError, ArgumentValueError

__all__ = [
    "AssignerWithPeriodicWatermarksWrapper",
    "TimestampAssigner",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]


class TimestampAssigner(abc.ABC):
    """Extracts the event time of a record."""

    @abc.abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """The event time of ``value`` in milliseconds since 1970-01-01T00:00:00Z.

        ``record_timestamp`` is the timestamp that the record has already (from its source), or -9223372036854775808.
        """


class WatermarkOutput(abc.ABC):
    """The output through which a `WatermarkGenerator` emits watermarks and marks its split as idle."""

    @abc.abstractmethod
    def emit_watermark(self, timestamp: int) -> None:
        """Emit a watermark, in ms: there will be no more records up to it. One below the last one has no effect."""

    @abc.abstractmethod
    def mark_idle(self) -> None:
        """Mark the split as idle: until its next record it no longer holds back the watermark of the others."""

    @abc.abstractmethod
    def mark_active(self) -> None:
        """Mark the split as active: it holds back the watermark of the others again."""


class WatermarkGenerator(abc.ABC):
    """Generates the watermarks of one split from its records, as in Java Flink: after a record (punctuated), or now
    and then (periodic). Keep plain data in its attributes.

    Example: the watermark is the timestamp of marker records::

        class Markers(WatermarkGenerator):
            def on_event(self, event, event_timestamp, output):
                if event.is_marker:
                    output.emit_watermark(event_timestamp)

        WatermarkStrategy.for_generator(Markers).with_timestamp_assigner(...)
    """

    @abc.abstractmethod
    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Called for each record, with its timestamp in ms. A watermark that is emitted here follows the record."""

    def on_periodic_emit(self, output: WatermarkOutput) -> None:  # noqa: B027 - punctuated ones need none
        """Called after each record and at the end of each epoch; ``pipeline.auto-watermark-interval`` decides when the
        watermarks that it emits are passed on. (Flink calls it at each such interval.)"""


class WatermarkContext:
    """What a program's supplier of generators or timestamp assigners is given (Java's
    ``WatermarkGeneratorSupplier.Context`` and ``TimestampAssignerSupplier.Context``)."""

    def __init__(self, metric_group: Any) -> None:
        self._metric_group = metric_group

    def get_metric_group(self) -> Any:
        """The group in which the generator or assigner registers its metrics."""
        return self._metric_group


@dataclass(frozen=True)
class WatermarkStrategy:
    """How a stream gets its timestamps, and which watermarks follow from them.

    ``kind`` is ``"none"`` (only the final watermark of a bounded input), ``"bounded"``: the watermark is
    ``highest timestamp seen - max_out_of_orderness_ms - 1`` (Flink's ``BoundedOutOfOrdernessWatermarks``), or
    ``"generator"``: what a `WatermarkGenerator` of the program emits. A class of the program may override
    ``create_timestamp_assigner`` and ``create_watermark_generator``, as in Java's Flink.

    >>> strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
    >>> strategy.with_idleness(Duration.of_minutes(1)).idle_timeout_ms
    60000
    """

    kind: Literal["none", "bounded", "generator"] = "none"
    max_out_of_orderness_ms: int = 0
    timestamp_assigner: TimestampAssigner | Callable[[Any, int], int] | None = None
    idle_timeout_ms: int | None = None
    alignment_group: str | None = None
    max_allowed_watermark_drift_ms: int | None = None
    alignment_update_interval_ms: int = 1_000
    generator_supplier: Callable[..., WatermarkGenerator] | None = None

    def create_timestamp_assigner(
        self, context: WatermarkContext
    ) -> TimestampAssigner | Callable[[Any, int], int] | None:
        """The timestamp assigner of a subtask; None: records keep the timestamps of their source."""
        return self.timestamp_assigner

    def create_watermark_generator(self, context: WatermarkContext) -> WatermarkGenerator:
        """The watermark generator of a split. The engine generates the watermarks of its own strategies itself, faster
        and with the same result."""
        supplier = self.generator_supplier
        if supplier is None:
            return _BoundedOutOfOrderness(self.max_out_of_orderness_ms if self.kind == "bounded" else None)
        generator = supplier(context) if accepts(supplier, 0) is False else supplier()
        check_made(generator, WatermarkGenerator, supplier, "the generator supplier")
        return generator

    def _with(self, **changes: Any) -> WatermarkStrategy:
        # a copy keeps the class, which may be the program's, and what it has set itself
        changed = copy.copy(self)
        for name, value in changes.items():
            object.__setattr__(changed, name, value)
        return changed

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        return WatermarkStrategy()

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """A strategy for timestamps that never decrease within a source split: bounded out-of-orderness of 0 ms."""
        return WatermarkStrategy(kind="bounded")

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration) -> WatermarkStrategy:
        """A strategy for records that come at most ``max_out_of_orderness`` after one with a higher timestamp.

        Raises:
            ArgumentTypeError: it is not a `Duration`.
            ArgumentValueError: it is negative.
        """
        where = "WatermarkStrategy.for_bounded_out_of_orderness()"
        millis = _millis(max_out_of_orderness, "max_out_of_orderness", where)
        if millis < 0:
            raise ArgumentValueError(
                f"max_out_of_orderness is {millis} ms",
                where=where,
                expected="0 or more",
                hint="it says how much later than others a record may come",
            )
        return WatermarkStrategy(kind="bounded", max_out_of_orderness_ms=millis)

    @staticmethod
    def for_generator(generator_supplier: Callable[..., WatermarkGenerator]) -> WatermarkStrategy:
        """Watermarks of a `WatermarkGenerator`; ``generator_supplier``, its class or a function, creates one per split.
        It takes no argument or, as in Java, a `WatermarkContext`.

        Raises:
            ArgumentTypeError: ``generator_supplier`` cannot be called, or takes other arguments.
        """
        where = "WatermarkStrategy.for_generator()"
        if not callable(generator_supplier):
            raise ArgumentTypeError(
                f"the generator supplier is {kind_of(generator_supplier)}",
                where=where,
                expected="a class or function that makes a WatermarkGenerator",
                hint="each split has a generator of its own: pass the class, not an instance",
            )
        if accepts(generator_supplier, 1) is not True:
            check_takes(generator_supplier, (), "the generator supplier", where)
        return WatermarkStrategy(kind="generator", generator_supplier=generator_supplier)

    def with_timestamp_assigner(
        self, timestamp_assigner: TimestampAssigner | Callable[[Any, int], int]
    ) -> WatermarkStrategy:
        """A copy of this strategy that reads timestamps with ``timestamp_assigner``; this one stays as it is.

        Args:
            timestamp_assigner: an assigner, or a function of (value, record timestamp in ms), which PyFlink does not
                have. PyFlink ignores the assigner of a strategy for ``from_source``, so there a function that takes
                other arguments only gives a warning.

        Raises:
            ArgumentTypeError: it is neither an instance of a class with ``extract_timestamp`` nor a function.
        """
        extract = getattr(timestamp_assigner, "extract_timestamp", timestamp_assigner)
        if isinstance(timestamp_assigner, type) or not callable(extract):
            raise _unusable(timestamp_assigner, "WatermarkStrategy.with_timestamp_assigner()")
        return self._with(timestamp_assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: Duration) -> WatermarkStrategy:
        """A copy of this strategy that marks a split without records for ``idle_timeout`` as idle, so that it no longer
        holds back the watermark of the others.

        Raises:
            ArgumentTypeError: it is not a `Duration`.
            ArgumentValueError: it is not positive.
        """
        where = "WatermarkStrategy.with_idleness()"
        millis = _millis(idle_timeout, "idle_timeout", where)
        if millis <= 0:
            raise ArgumentValueError(
                f"idle_timeout is {millis} ms",
                where=where,
                expected="more than 0",
                hint="leave it out for sources that are never idle",
            )
        return self._with(idle_timeout_ms=millis)

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: Duration,
        update_interval: Duration | None = None,
    ) -> WatermarkStrategy:
        """Hold back the sources and splits of a group that are more than the drift ahead of its lowest watermark.

        Works for the strategy of a source (``from_source``, or an operator that is chained to the source). The engine
        decides anew for each epoch, so an ``update_interval`` has no effect and logs a warning (docs/semantics.md).

        Raises:
            ArgumentTypeError: the group is not a ``str``, or the drift or the interval is not a `Duration`.
            ArgumentValueError: the drift is negative, or the interval is not positive.
        """
        where = "WatermarkStrategy.with_watermark_alignment()"
        check_instance(
            watermark_group, str, "watermark_group is", where, "all strategies with the same name are one group"
        )
        drift_ms = _millis(max_allowed_watermark_drift, "max_allowed_watermark_drift", where)
        if drift_ms < 0:
            raise ArgumentValueError(
                f"max_allowed_watermark_drift is {drift_ms} ms",
                where=where,
                expected="0 or more",
                hint="it says how far a source may be ahead of the others of its group",
            )
        interval_ms = 1_000 if update_interval is None else _millis(update_interval, "update_interval", where)
        if interval_ms <= 0:
            raise ArgumentValueError(
                f"update_interval is {interval_ms} ms",
                where=where,
                expected="more than 0",
                hint="leave it out: it has no effect here",
            )
        if update_interval is not None:
            warn_without_effect(
                "the update_interval of with_watermark_alignment",
                "who reads on is decided before each epoch (flinkish.epoch.interval)",
            )
        return self._with(
            alignment_group=watermark_group,
            max_allowed_watermark_drift_ms=drift_ms,
            alignment_update_interval_ms=interval_ms,
        )


class _BoundedOutOfOrderness(WatermarkGenerator):
    """Watermarks that are one millisecond and a delay behind the greatest timestamp; with the delay None there are
    none."""

    def __init__(self, delay_ms: int | None) -> None:
        self._delay_ms = delay_ms

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        if self._delay_ms is not None:
            output.emit_watermark(max(event_timestamp - self._delay_ms - 1, _MIN_TIMESTAMP_MS))


#: Long.MIN_VALUE, below which there is no watermark.
_MIN_TIMESTAMP_MS = -(2**63)


@dataclass(frozen=True)
class AssignersOfProgram:
    """Makes the timestamp assigner of each subtask, for a strategy whose class overrides
    ``create_timestamp_assigner``."""

    strategy: WatermarkStrategy

    def extractor(self, context: WatermarkContext) -> Callable[[Any, int], int] | None:
        """The function of (value, record timestamp) of a subtask.

        Raises:
            TypeMismatchError: the strategy has made something else than a timestamp assigner.
        """
        assigner = self.strategy.create_timestamp_assigner(context)
        extract = _extract_of(assigner)
        if assigner is not None and extract is None:
            check_made(assigner, TimestampAssigner, self.strategy, "create_timestamp_assigner")
        return extract


def extractor_of(
    strategy: WatermarkStrategy, of_source: bool = False
) -> Callable[[Any, int], int] | AssignersOfProgram | None:
    """The function of (value, record timestamp) that gives the timestamps of a strategy's records, or what makes it in
    each subtask; None: they have those of their source. ``of_source``: the strategy is that of ``from_source``, whose
    assigner PyFlink ignores.

    Raises:
        ArgumentTypeError: the assigner cannot be called with (value, record timestamp), and is not that of a source.
    """
    if not runs_ours(strategy, "create_timestamp_assigner"):
        return AssignersOfProgram(strategy)
    assigner = strategy.timestamp_assigner
    extract = _extract_of(assigner)
    if assigner is not None and extract is None:
        if not of_source:
            raise _unusable(assigner, "assign_timestamps_and_watermarks()")
        warn_without_effect(
            "the timestamp assigner of from_source()",
            "it cannot be called with (value, record timestamp), and PyFlink ignores it; the records keep the times "
            "of their source",
        )
    return extract


def generators_of(strategy: WatermarkStrategy) -> Callable[[WatermarkContext], WatermarkGenerator] | None:
    """What makes the generator of each split; None: the engine generates the strategy's watermarks itself."""
    if strategy.generator_supplier is None and runs_ours(strategy, "create_watermark_generator"):
        return None
    return strategy.create_watermark_generator


def _extract_of(timestamp_assigner: Any) -> Callable[[Any, int], int] | None:
    """The function of (value, record timestamp) of a timestamp assigner; None: it cannot be called so."""
    if isinstance(timestamp_assigner, type):
        return None
    extract: Any = getattr(timestamp_assigner, "extract_timestamp", timestamp_assigner)
    if not callable(extract) or inspect.isgeneratorfunction(extract):
        return None
    return None if accepts(extract, 2) is False else extract


def _unusable(timestamp_assigner: Any, where: str) -> ArgumentTypeError:
    """The error for a timestamp assigner that cannot be called with (value, record timestamp)."""
    return ArgumentTypeError(
        f"the timestamp assigner is {kind_of(timestamp_assigner)}",
        where=where,
        expected="an instance of TimestampAssigner, which has extract_timestamp(value, record_timestamp)",
        hint="derive a class from TimestampAssigner, or give a function of (value, record timestamp) that returns ms",
    )


class AssignerWithPeriodicWatermarksWrapper:
    """An assigner and a bound in one object, as before Flink 1.11; :meth:`to_watermark_strategy` gives the strategy."""

    def __init__(self, timestamp_assigner: TimestampAssigner, max_out_of_orderness: Duration | None = None) -> None:
        self._strategy = WatermarkStrategy.for_bounded_out_of_orderness(
            max_out_of_orderness or Duration(0)
        ).with_timestamp_assigner(timestamp_assigner)

    def to_watermark_strategy(self) -> WatermarkStrategy:
        return self._strategy


def _millis(duration: Duration, name: str, where: str) -> int:
    check_instance(duration, Duration, f"{name} is", where, "such as Duration.of_seconds(5); Time is for windows")
    return duration.to_millis()
