"""The operators of one task, chained: what one emits, the next processes in the same call (Flink's OperatorChain).

The chain is wired once per task. Its operators call each other on Python's stack, so Python's limit of recursion grows
with the longest chain of the process, and functions have as much of it as anywhere.

Rule upheld here: what leaves a chain (to another task, to a sink, into columns) fits its declared type. Between the
functions of a chain a value that does not fit passes as it is, as in PyFlink, whose serializers work between tasks
only. So the converter of an operator refuses values only if its results leave the chain right away. Otherwise it lets
them pass, and from the first one on checks what the operators that only forward records send out of the chain. Chains
in which everything fits never pay for that.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Protocol

from flinkish.common.typeinfo.base import BatchConverter
from flinkish.core.time import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from flinkish.errors import failures_of_user_code
from flinkish.runtime.exchange.buffer import EpochInfo, Records, WatermarkStep
from flinkish.runtime.exchange.keys import OwnKeys, ReceivedKeys
from flinkish.runtime.exchange.partitioners import Sender
from flinkish.runtime.exchange.writer import Emit, RecordWriter
from flinkish.runtime.job.accumulators import TaskAccumulators
from flinkish.runtime.job.context import TaskMetricGroup
from flinkish.runtime.job.deployment import JobSettings, OperatorDescriptor, VertexDescriptor
from flinkish.runtime.job.operator import OperatorContext, OperatorFactory, OperatorListener, StreamOperator
from flinkish.runtime.job.outputs import ChainOutput, HeardOutput, Interim, copied, heard
from flinkish.runtime.job.report import LifecycleCall
from flinkish.runtime.operators.watermarks import TimestampsAndWatermarksFactory
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.operator_state import OperatorState

#: What a source task keeps of a split between epochs: operator uid -> the value of `StreamOperator.save_split`, and the
#: watermark that the operator's consumers have seen.
SplitState = Mapping[str, tuple[Any, int]]

#: Python's own limit of recursion, which is meant for functions.
_FRAMES_OF_FUNCTIONS = 1_000

#: More frames than an operator of a chain has on the stack while the next one works (about five).
_FRAMES_OF_OPERATOR = 20


class ProcessBatch(Protocol):
    """The signature of `StreamOperator.process_batch`."""

    def __call__(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None: ...


def own_keys(vertex: VertexDescriptor, subtask: int) -> OwnKeys | None:
    """The check that keys belong to a subtask of a keyed vertex; None if all keys do."""
    if not vertex.keyed or vertex.parallelism == 1:
        return None
    where = f"operator '{vertex.head.name}' (uid {vertex.head.uid})"
    return OwnKeys(subtask, vertex.parallelism, vertex.max_parallelism, where)


class OperatorChain:
    """Creates the operators of one subtask, connects them, and drives them through their lifecycle."""

    def __init__(
        self,
        vertex: VertexDescriptor,
        subtask: int,
        attempt: int,
        settings: JobSettings,
        emit: Emit,
        keyed_state: KeyedStateBackend | None,
        head_epoch: EpochInfo,
        listener: OperatorListener | None = None,
        trace: deque[LifecycleCall] | None = None,
    ) -> None:
        self._trace = trace
        self.vertex = vertex = vertex.with_own_functions(share=settings.share_functions)
        frames = _FRAMES_OF_FUNCTIONS + _FRAMES_OF_OPERATOR * len(vertex.operators)
        sys.setrecursionlimit(max(sys.getrecursionlimit(), frames))
        self._subtask = subtask
        self._listener = listener
        self._head_epoch = head_epoch
        factories = [descriptor.factory for descriptor in vertex.operators]
        self.operators = [self._let_misfits_pass(index, factories).create() for index in range(len(factories))]
        interim = Interim()
        self.outputs = [
            ChainOutput(*told) if listener is None else HeardOutput(*told, listener, descriptor.uid, subtask)
            for descriptor in vertex.operators
            for told in [(interim, f"operator '{descriptor.name}' (uid {descriptor.uid})", descriptor.warnings)]
        ]
        self.states = {descriptor.uid: OperatorState() for descriptor in vertex.operators}
        self.metrics = {descriptor.uid: TaskMetricGroup() for descriptor in vertex.operators}
        self.accumulators = TaskAccumulators(self.metrics)
        self.writers: list[RecordWriter] = []
        self._closed = False
        self._disposed = False
        self._split = ""
        self._split_watermarks: dict[str, list[int]] = {}
        #: processes the records that the head receives
        self.process_batch = self._input_of(0)
        #: processes a stretch; None: the head is given batches
        self.process_stretch = self._stretches_of_head()
        self._wire(subtask, settings, emit)
        self._setup(subtask, attempt, settings, keyed_state)

    @property
    def head(self) -> StreamOperator:
        """The operator that receives the input."""
        return self.operators[0]

    def _let_misfits_pass(self, index: int, factories: list[OperatorFactory]) -> OperatorFactory:
        """The factory of an operator, with a converter that lets values pass that do not fit, if none of the results
        leaves the chain right away."""
        converter = getattr(factories[index], "converter", None)
        is_source = self.vertex.source is not None and index == 0
        if not isinstance(converter, BatchConverter) or is_source or self._leaving(index, factories):
            return factories[index]
        checks = []
        forwarding = self._consumers(index)
        for forwarder in forwarding:
            if factories[forwarder].forwards_records:
                checks.append((forwarder, self._leaving(forwarder, factories)))
                forwarding.extend(self._consumers(forwarder))

        descriptor = self.vertex.operators[index]
        convert = replace(converter, where=f"results of '{descriptor.name}' (uid {descriptor.uid})")

        def check() -> None:
            while checks:
                forwarder, leaving = checks.pop()
                self.outputs[forwarder].convert_for(leaving, convert)

        return replace(factories[index], converter=replace(converter, on_misfit=check))  # type: ignore[type-var]

    def _consumers(self, index: int) -> list[int]:
        """The operators of the chain that consume the main output of an operator, in the order of its targets."""
        operators = enumerate(self.vertex.operators)
        return [place for place, other in operators if other.parent == index and other.parent_tag is None]

    def _leaving(self, index: int, factories: list[OperatorFactory]) -> set[int]:
        """The targets of the main output of an operator to which records leave the chain."""
        writers = sum(edge.tag is None for edge in self.vertex.operators[index].edges)
        consumers = enumerate(self._consumers(index), writers)
        return {*range(writers), *(place for place, other in consumers if not factories[other].takes_misfits)}

    def _wire(self, subtask: int, settings: JobSettings, emit: Emit) -> None:
        for index, descriptor in enumerate(self.vertex.operators):
            if descriptor.parent >= 0:
                output = self.outputs[descriptor.parent]
                output.add_child(self.operators[index], descriptor.parent_tag, self._input_of(index))
        from_source = self.vertex.source is not None
        factories = [one.factory for one in self.vertex.operators]
        in_event_time = from_source and any(
            isinstance(one, TimestampsAndWatermarksFactory) and one.makes_watermarks for one in factories
        )
        for output, descriptor in zip(self.outputs, self.vertex.operators):
            for edge in descriptor.edges:
                where = f"operator '{descriptor.name}' (uid {descriptor.uid})"
                sender = Sender(subtask, self.vertex.parallelism, edge.target_parallelism, where)
                limits = settings.buffer_max_records, settings.buffer_max_bytes
                writer = RecordWriter(edge, sender, emit, *limits, from_source, in_event_time)
                output.add_writer(writer, edge.tag)
                self.writers.append(writer)

    def _input_of(self, index: int) -> ProcessBatch:
        """The callable that processes an operator's records; with a listener, it reports them first."""
        process, listener, subtask = self.operators[index].process_batch, self._listener, self._subtask
        uid = self.vertex.operators[index].uid
        if listener is None:
            return process

        def process_heard(values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
            listener.received(uid, subtask, input_index, heard(values), copied(timestamps))
            process(values, timestamps, input_index)

        return process_heard

    def _stretches_of_head(self) -> Callable[[Sequence[Records | WatermarkStep]], None] | None:
        process, in_turn = self.head.process_stretch, iter if self._listener is None else self._reported
        return None if process is None else lambda steps: process(steps, in_turn(steps))

    def _reported(self, steps: Iterable[Records | WatermarkStep]) -> Iterator[Records | WatermarkStep]:
        """The steps of a stretch; a batch is reported to the listener when it is its turn."""
        listener, uid = self._listener, self.vertex.head.uid
        for step in steps:
            if listener is not None and isinstance(step, Records):
                values, times = heard(step.values), copied(step.timestamps)
                listener.received(uid, self._subtask, step.input_index, values, times)
            yield step

    def _setup(self, subtask: int, attempt: int, settings: JobSettings, keyed: KeyedStateBackend | None) -> None:
        """Set up the operators from the last to the first, as Flink does, so that each can rely on those downstream."""
        for index in reversed(range(len(self.operators))):
            descriptor = self.vertex.operators[index]
            context = self._context(index, descriptor, subtask, attempt, settings, keyed)
            self.operators[index].setup(context, self.outputs[index])
            self._note(self.operators[index], "setup")

    def _note(self, operator: StreamOperator, call: str) -> None:
        """Note a call of the lifecycle, if that is traced."""
        if self._trace is not None:
            context, now_ms = operator.context, int(time.time() * 1000)
            where = socket.gethostname(), os.getpid()
            task = self.vertex.task_name(self._subtask)
            epoch = self._head_epoch.epoch
            self._trace.append(LifecycleCall(now_ms, task, context.name, context.uid, call, epoch, *where))

    def _context(
        self,
        index: int,
        descriptor: OperatorDescriptor,
        subtask: int,
        attempt: int,
        settings: JobSettings,
        keyed: KeyedStateBackend | None,
    ) -> OperatorContext:
        return OperatorContext(
            uid=descriptor.uid,
            name=descriptor.name,
            task_name=self.vertex.name,
            subtask=subtask,
            parallelism=self.vertex.parallelism,
            max_parallelism=self.vertex.max_parallelism,
            attempt=attempt,
            epoch=self._head_epoch if index == 0 else EpochInfo(),
            metrics=self.metrics[descriptor.uid],
            keyed_state=keyed if index == 0 else None,
            operator_state=self.states[descriptor.uid],
            key_selectors=self._key_selectors(subtask) if index == 0 else (),
            job_parameters=settings.job_parameters,
            cached_files=settings.cached_files,
            accumulators=self.accumulators.operators[descriptor.uid],
            configuration=settings.configuration,
            added_at=descriptor.added_at,
            warnings=descriptor.warnings,
        )

    def _key_selectors(self, subtask: int) -> tuple[Callable[[Any], Any], ...]:
        """The key selectors of the vertex, with the check that their keys belong to the subtask."""
        own = own_keys(self.vertex, subtask)
        selectors = self.vertex.key_selectors
        return selectors if own is None else tuple(ReceivedKeys(selector, own) for selector in selectors)

    def open(self, restored_epoch: int | None = None, restored: bool = False) -> None:
        """Initialize the state of each operator and open it, from the last operator to the first.

        Args:
            restored_epoch: the epoch from whose state the task continues; None if it has no stored state.
            restored: whether the job was started from a savepoint.
        """
        for operator in reversed(self.operators):
            info = operator.context.epoch
            info.restored, info.restored_epoch = restored or restored_epoch is not None, restored_epoch
            with self._without_key("initialize_state()"):
                self._note(operator, "initialize_state")
                operator.initialize_state()
            with self._without_key("open()"):
                self._note(operator, "open")
                operator.open()

    def _without_key(self, method: str) -> AbstractContextManager[None]:
        """While this method of user code runs, keyed state has no key. What each subtask does, one of them logs."""
        context = self.head.context
        if context.keyed_state is None:
            return nullcontext()
        quiet = context.subtask > 0 and method in ("initialize_state()", "open()")
        return context.keyed_state.unkeyed.during(context.keyed_state, method, quiet)

    def begin(
        self,
        epoch: int,
        now_ms: int,
        watermark_ms: int,
        saved: dict[str, Any],
        splits: Mapping[str, SplitState] | None = None,
    ) -> None:
        """Begin an epoch: set the time and the watermarks of all operators, and restore what `end` has returned. In
        source tasks, also restore what `state_of_split` has returned for each of these splits."""
        self._split, self._split_watermarks = "", {}
        for writer in self.writers:
            writer.begin_epoch(epoch)
        for operator, descriptor in zip(self.operators, self.vertex.operators):
            info = operator.context.epoch
            info.epoch, info.processing_time_ms = epoch, now_ms
            info.end_of_input = info.commit_requested = False
            if descriptor.parent < 0:
                info.watermark_ms = watermark_ms
            # an operator comes after the one that feeds it, whose output watermark is announced by now
            value, output_watermark_ms = saved.get(descriptor.uid, (None, info.watermark_ms))
            operator.restore(value)
            self._announce(operator, output_watermark_ms)
        with self._without_key("notify_checkpoint_complete()"):
            for operator in self.operators:
                operator.begin_epoch()
        for split, state in (splits or {}).items():
            self._restore_split(split, state)
        if "" in self._split_watermarks:
            for operator, seen_ms in zip(self.operators, self._split_watermarks[""]):
                self._announce(operator, seen_ms)

    def _restore_split(self, split: str, state: SplitState) -> None:
        seen: list[int] = []
        for operator, descriptor in zip(self.operators, self.vertex.operators):
            before_ms = seen[descriptor.parent] if descriptor.parent >= 0 else MIN_TIMESTAMP_MS
            value, seen_ms = state.get(descriptor.uid, (None, before_ms))
            if value is not None:
                operator.restore_split(split, value, seen_ms)
            seen.append(seen_ms)
        self._split_watermarks[split] = seen

    def state_of_split(self, split: str) -> dict[str, tuple[Any, int]]:
        """What a source task must know of a split when it reads on: as far as it has read it in the running epoch."""
        current = [output.seen_ms for output in self.outputs]
        seen = current if split == self._split else self._split_watermarks[split]
        found: dict[str, tuple[Any, int]] = {}
        for index, (operator, descriptor) in enumerate(zip(self.operators, self.vertex.operators)):
            before_ms = seen[descriptor.parent] if descriptor.parent >= 0 else MIN_TIMESTAMP_MS
            value = operator.save_split(split)
            if value is not None or seen[index] != before_ms:
                found[descriptor.uid] = value, seen[index]
        return found

    def state_of_stream(self) -> dict[str, tuple[Any, int]]:
        """What a source task must know before it reads another split of the same stream: the watermarks that the
        functions have seen. It is restored as that of the split ""."""
        return {one.uid: (None, output.seen_ms) for one, output in zip(self.vertex.operators, self.outputs)}

    def _announce(self, operator: StreamOperator, watermark_ms: int) -> None:
        """Restore the watermark that this operator has sent to the operators that it feeds, without firing timers."""
        index = self.operators.index(operator)
        self.outputs[index].watermark_ms = self.outputs[index].seen_ms = watermark_ms
        for child, descriptor in zip(self.operators, self.vertex.operators):
            if descriptor.parent == index:
                child.context.epoch.watermark_ms = watermark_ms

    def end(self) -> dict[str, Any]:
        """Handle the barrier: snapshot from the first operator to the last, and send all buffers. Returns the saved
        values and output watermarks by operator uid, for the next `begin`."""
        with self._without_key("snapshot_state()"):
            for operator in self.operators:
                self._note(operator, "snapshot_state")
                operator.snapshot_state()
                operator.context.operator_state.settle()
        for writer in self.writers:
            writer.end_epoch()
        saved: dict[str, Any] = {}
        for operator, output, descriptor in zip(self.operators, self.outputs, self.vertex.operators):
            value = operator.save()
            if value is not None or output.seen_ms != operator.context.epoch.watermark_ms:
                saved[descriptor.uid] = (value, output.seen_ms)
        return saved

    def begin_origin(self, origin: str, part: int = 0) -> None:
        """Attribute all that is sent from now on to this origin."""
        for writer in self.writers:
            writer.begin_origin(origin, part)

    def end_origin(self, origin: str) -> None:
        """Send that this origin has ended."""
        self.begin_origin(origin)
        for writer in self.writers:
            writer.emit_watermark(MAX_WATERMARK_MS)

    def split_ended(self) -> None:
        """In source tasks: the split has ended for good, and another one may continue the same stream."""
        for operator in self.operators:
            operator.split_ended()

    def end_split(self) -> None:
        """In source tasks: emit what operators hold back, with the watermarks in between."""
        for operator in self.operators:
            operator.end_split()

    def begin_split(self, split: str, same_stream: bool = False) -> None:
        """In source tasks: begin the records of this split, which has its own watermarks. If it continues the same
        stream, what functions see does not go back."""
        self.end_split()
        now = self._split_watermarks[self._split] = [output.seen_ms for output in self.outputs]
        self._split = split
        nothing = [MIN_TIMESTAMP_MS] * len(now)
        before, least = self._split_watermarks.get(split, nothing), now if same_stream else nothing
        for operator, before_ms, least_ms in zip(self.operators, before, least):
            operator.begin_split(split, least_ms)
            self._announce(operator, max(before_ms, least_ms))

    def mark_active(self) -> None:
        """Mark the current origin as active: it has records, even if the chain emits none for them."""
        for writer in self.writers:
            writer.mark_active()

    def mark_idle(self) -> None:
        """Mark the current origin as idle, whatever the operators of the chain say."""
        for writer in self.writers:
            writer.emit_status(True)

    def process_watermark(self, watermark_ms: int) -> None:
        """Pass the risen combined watermark of the inputs to the head operator."""
        self.head.context.epoch.watermark_ms = watermark_ms
        self.head.process_watermark(watermark_ms)

    def finish(self) -> None:
        """Finish the operators at the end of the input, from the first to the last."""
        for operator in self.operators:
            operator.context.epoch.end_of_input = True
            self._note(operator, "finish")
            operator.finish()

    def close(self) -> None:
        """Close the operators at the normal end, from the last to the first, as in Flink. Later calls, and calls after
        `dispose`, do nothing."""
        if self._closed or self._disposed:
            return
        self._closed = True
        with self._without_key("close()"):
            for operator in reversed(self.operators):
                self._note(operator, "close")
                operator.close()

    def dispose(self) -> None:
        """Dispose of all operators, once, from the last to the first. An error of one operator does not prevent the
        others from being disposed of; the first error is raised at the end."""
        if self._disposed:
            return
        self._disposed = True
        errors = []
        if (keyed := self.head.context.keyed_state) is not None:
            # of a call that has failed
            keyed.loans.forget()
        with self._without_key("close()"):
            for operator in reversed(self.operators):
                self._note(operator, "dispose")
                try:
                    operator.dispose()
                except failures_of_user_code() as error:
                    errors.append(error)
        if errors:
            raise errors[0]

    def records_out(self) -> int:
        """The number of records that have left the chain since the last call, to other vertices or into a sink."""
        total = sum(writer.take_count() for writer in self.writers)
        for operator, descriptor in zip(self.operators, self.vertex.operators):
            if descriptor.sink is not None:
                total += operator.take_count()  # type: ignore[attr-defined]
        return total

    def sent(self) -> tuple[int, int]:
        """The number of records that the chain has sent so far: to other vertices, and to its sinks."""
        sinks = zip(self.operators, self.vertex.operators)
        written = (op.records for op, descriptor in sinks if descriptor.sink is not None)  # type: ignore[attr-defined]
        return sum(writer.records for writer in self.writers), sum(written)

    def metric_values(self, now_ms: int) -> dict[str, float]:
        """The values of all metrics at the end of the epoch of this processing time, as ``<operator uid>.<name>`` ->
        value."""
        groups = self.metrics.items()
        return {f"{uid}.{name}": value for uid, group in groups for name, value in group.snapshot(now_ms).items()}

    def discard(self) -> None:
        """Drop all accumulated values and unsent records, because the attempt has failed."""
        self.accumulators.forget()
        for writer in self.writers:
            writer.discard()
