"""Base of the operators that call one user function (Flink's AbstractUdfStreamOperator), and the contexts and handles
of operator state that a `CheckpointedFunction` is given.

The rules: the function is opened once and closed once, by ``close`` at the normal end or else by ``dispose``; it is
also closed if its ``open`` failed half way. A plain callable is neither opened nor closed. On a keyed stream the
current key is set before user code that has state handles, or may still ask for one, sees a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any
from weakref import ref

from flinkish.common.detach import SHARED, all_detached, handed_over
from flinkish.common.types import Row
from flinkish.core.checkpointed_function import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    OperatorStateStore,
)
from flinkish.core.functions import Function, KeyedStateStore
from flinkish.core.state import BroadcastState, ListState, ListStateDescriptor, MapStateDescriptor, StateDescriptor
from flinkish.core.time import MIN_TIMESTAMP_MS
from flinkish.errors import InternalError, ProgramError, StateAccessError, TypeMismatchError
from flinkish.runtime.exchange.keys import keys_of
from flinkish.runtime.job.context import StreamingRuntimeContext
from flinkish.runtime.job.log import warn_of_program
from flinkish.runtime.job.operator import OperatorContext, Output, StreamOperator
from flinkish.runtime.job.outputs import Converter, emit, hand_over_rule
from flinkish.runtime.operators.keeps_nothing import Proof, keeps_nothing
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.operator_state import BroadcastHandle, BroadcastStates, OperatorState
from flinkish.runtime.state.state_rows import BROADCAST_STATE_KIND, LIST_STATE_KIND, UNION_STATE_KIND


class OperatorListHandle(ListState[Any]):
    """The handle of a list state in operator state. An element that was read is the state's until the barrier, and for
    as long as somebody keeps it: what is changed in it in place is written at the barrier."""

    def __init__(self, state: OperatorState, kind: str, name: str) -> None:
        self._state = state
        self._kind = kind
        self._name = name

    def get(self) -> list[Any]:
        lend = self._state.lend
        return [
            element if element.__class__ in SHARED else lend(self._kind, self._name, index, element)
            for index, element in enumerate(self._state.elements(self._kind, self._name))
        ]

    def add(self, value: Any) -> None:
        self.add_all([value])

    def add_all(self, values: list[Any]) -> None:
        there = self._state.elements(self._kind, self._name)
        self._state.set_list(self._kind, self._name, there, all_detached(values))

    def update(self, values: list[Any]) -> None:
        self._state.set_list(self._kind, self._name, [], all_detached(values))

    def clear(self) -> None:
        """Remove all elements."""
        self._state.set_list(self._kind, self._name, [], ())


class RuntimeOperatorStateStore(OperatorStateStore):
    """Gives a function access to the operator state of one operator in one subtask. ``where`` names the operator in
    errors."""

    def __init__(self, state: OperatorState, where: str) -> None:
        self._state = state
        self._where = where

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        self._declare(state_descriptor, ListStateDescriptor, LIST_STATE_KIND)
        return OperatorListHandle(self._state, LIST_STATE_KIND, state_descriptor.name)

    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        self._declare(state_descriptor, ListStateDescriptor, UNION_STATE_KIND)
        return OperatorListHandle(self._state, UNION_STATE_KIND, state_descriptor.name)

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        self._declare(state_descriptor, MapStateDescriptor, BROADCAST_STATE_KIND)
        states = BroadcastStates(self._state, (), self._where)
        states.writable = True
        return BroadcastHandle(states, self._state, state_descriptor)

    def _declare(self, descriptor: StateDescriptor, expected: type[StateDescriptor], kind: str) -> None:
        if not isinstance(descriptor, expected):
            raise StateAccessError(
                f"a {type(descriptor).__name__} was given", where=self._where, expected=f"a {expected.__name__}"
            )
        if descriptor.ttl_config is not None:
            raise StateAccessError(
                f"operator state {descriptor.name!r} was given a time-to-live",
                where=self._where,
                expected="a descriptor without one: only keyed state expires",
            )
        known = self._state.kind_of(descriptor.name)
        if known not in (None, kind):
            raise StateAccessError(
                f"operator state {descriptor.name!r} is declared with two kinds: {known} and {kind}",
                where=self._where,
                expected="one kind per state name",
                hint="give the new state a name of its own",
            )
        self._state.declare(kind, descriptor)


class InitializationContext(FunctionInitializationContext):
    """The context of ``initialize_state`` of one operator in one subtask."""

    def __init__(self, context: OperatorContext, where: str) -> None:
        self._context = context
        self._where = where
        context.state_stores.append(ref(self))

    def is_restored(self) -> bool:
        return self._context.epoch.restored

    def get_restored_checkpoint_id(self) -> int | None:
        return self._context.epoch.restored_epoch

    def get_operator_state_store(self) -> OperatorStateStore:
        return RuntimeOperatorStateStore(self._context.operator_state, self._where)

    def get_keyed_state_store(self) -> KeyedStateStore:
        return StreamingRuntimeContext(self._context)


class SnapshotContext(FunctionSnapshotContext):
    """The context of ``snapshot_state`` at the barrier of an epoch: the epoch is the checkpoint id, and its processing
    time the timestamp."""

    def __init__(self, context: OperatorContext) -> None:
        self._epoch = context.epoch

    def get_checkpoint_id(self) -> int:
        return self._epoch.epoch

    def get_checkpoint_timestamp(self) -> int:
        return self._epoch.processing_time_ms


#: The classes of iterables that are probably meant as one result, and not as several.
PARTED = frozenset({tuple, Row, str, bytes, dict})


class UserFunctionOperator(StreamOperator):
    """Base of operators that call a user function.

    Args:
        function: the user's function, or a callable.
        method: name of the function's method that is called for each record.
        converter: converts the results of a batch to the declared type; None: there is nothing to convert.
        method2: for an operator with two inputs: the method that is called for the records of the second input.
    """

    def __init__(
        self,
        function: Function | Callable[..., Any],
        method: str,
        converter: Converter | None,
        method2: str | None = None,
    ) -> None:
        self.function = function
        self.call: Callable[..., Any] = _callable(function, method)
        #: for each input, what is called for its records
        self.calls = (self.call,) if method2 is None else (self.call, _callable(function, method2))
        self.inputs = len(self.calls)
        #: for each input that records have come from: the proof that the function keeps nothing, or None
        self._proofs: dict[int, Proof | None] = {}
        self.converter = converter
        #: the rule by which results are handed over (`hand_over_rule`); set by `setup`
        self.shared: set[type] = SHARED
        self.handed_over: Callable[..., Any] = handed_over
        self._must_close = self._looked_at_parts = False
        #: the last epoch in which this instance has reached the barrier
        self._ended_epoch: int | None = None

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self.shared, self.handed_over = hand_over_rule(self.converter, output)

    def initialize_state(self) -> None:
        if isinstance(self.function, CheckpointedFunction):
            self.function.initialize_state(InitializationContext(self.context, self.where))

    def begin_epoch(self) -> None:
        if isinstance(self.function, CheckpointListener):
            epoch = self.context.epoch.epoch
            if epoch == self._ended_epoch:
                self.function.notify_checkpoint_aborted(epoch)
            elif epoch > 0:
                # Spark begins an epoch when the previous one is committed
                self.function.notify_checkpoint_complete(epoch - 1)

    def snapshot_state(self) -> None:
        self._ended_epoch = self.context.epoch.epoch
        if isinstance(self.function, CheckpointedFunction):
            self.function.snapshot_state(SnapshotContext(self.context))

    def open(self) -> None:
        if isinstance(self.function, Function):
            self._must_close = True
            self.function.open(StreamingRuntimeContext(self.context))

    def close(self) -> None:
        if self._must_close:
            self._must_close = False
            assert isinstance(self.function, Function)
            self.function.close()

    def dispose(self) -> None:
        self.close()

    @property
    def where(self) -> str:
        """Names the operator in errors."""
        return f"operator '{self.context.name}' (uid {self.context.uid})"

    @property
    def keyed_state(self) -> KeyedStateBackend:
        """The keyed state backend of a keyed operator; raises InternalError if there is none."""
        backend = self.context.keyed_state
        if backend is None:
            raise InternalError("a keyed operator got no keyed state", where=self.where)
        return backend

    def per_record(self, values: list[Any], input_index: int = 0) -> Callable[[Any], Any]:
        """The function to call with each record of a batch, in their order. This is the user's function itself or, if
        that can hold state handles on a keyed stream, one that sets the current key before it calls the user's."""
        call = self.calls[input_index]
        if not self.context.may_have_keyed_state():
            return call
        backend = self.keyed_state
        keys = keys_of(self.context.key_selectors[input_index], values)
        backend.prefetch(keys)
        following = iter(keys)
        lent, settle = backend.loans.open, backend.loans.settle

        def with_key(value: Any) -> Any:
            if lent:
                settle()
            backend.current_key = next(following)
            return call(value)

        return with_key

    def proof_for(self, values: list[Any], input_index: int) -> Proof | None:
        """The proof that what the function makes of these records can be handed over as it is, since the function keeps
        none of it. It is looked for when the first records come: by then the function is open."""
        if input_index not in self._proofs:
            self._proofs[input_index] = keeps_nothing(self.calls[input_index])
        proof = self._proofs[input_index]
        return proof if proof is not None and proof.holds(values) else None

    def results(self, values: list[Any], what: str, input_index: int = 0) -> list[Any]:
        """The result of the function for each record of a batch, handed over. ``what`` names the function.

        Raises:
            ProgramError: the function has raised StopIteration.
        """
        # the name of the iterator, here and in other operators: runtime/task/progress.py
        call, arriving = self.per_record(values, input_index), iter(values)
        proof = self.proof_for(values, input_index)
        if proof is not None:
            results = list(map(call, arriving))
            if len(results) != len(values):
                raise self.stop_error(what)
            # another thread may have bound a variable anew
            return results if proof.stands() else all_detached(results)
        shared, hand_over = self.shared, self.handed_over
        results = []
        append = results.append
        try:
            for value in arriving:
                result = call(value)
                if type(result) not in shared:
                    # `values` and `value` refer to a record that is returned as it came
                    result = hand_over(result, 2 if result is value else 0)
                append(result)
        except StopIteration as error:
            raise self.stop_error(what) from error
        return results

    def flat_results(
        self, values: list[Any], timestamps: list[int] | None, input_index: int = 0
    ) -> tuple[list[Any], list[int] | None]:
        """The results of a function that returns an iterable, or something falsy, for each record, and their
        timestamps: each result has the timestamp of its record. A generator is exhausted before the function sees the
        next record. `map` is not used: it would take a StopIteration of the function for the end of the batch."""
        call, arriving = self.per_record(values, input_index), iter(values)
        shared, hand_over = self.shared, self.handed_over
        results: list[Any] = []
        times: list[int] = []
        for value, timestamp in zip(arriving, repeat(0) if timestamps is None else timestamps):
            iterable = call(value)
            if iterable:
                # not `extend`: functions mostly return generators of few results, for which it takes twice as long
                for result in iterable:
                    if type(result) not in shared:
                        result = hand_over(result)
                    results.append(result)
                    times.append(timestamp)
        return results, None if timestamps is None else times

    def results_with_context(
        self, ctx: Any, values: list[Any], timestamps: list[int] | None, input_index: int
    ) -> tuple[list[Any], list[int] | None]:
        """The results of the function, which is called with each record of a batch and a context, without a current
        key, and their timestamps: each result has the timestamp of its record."""
        process, shared, hand_over = self.calls[input_index], self.shared, self.handed_over
        results: list[Any] = []
        times: list[int] = []
        iterable: Any = None
        stamps: Iterable[int] = repeat(MIN_TIMESTAMP_MS) if timestamps is None else timestamps
        arriving = iter(values)
        for value, timestamp in zip(arriving, stamps, strict=False):
            ctx.current_timestamp = timestamp
            iterable = process(value, ctx)
            if iterable:
                for result in iterable:
                    if type(result) not in shared:
                        result = hand_over(result)
                    results.append(result)
                    times.append(timestamp)
        if iterable.__class__ in PARTED:
            self.warn_of_parts(iterable, input_index)
        return results, None if timestamps is None else times

    def warn_of_parts(self, returned: Any, input_index: int = 0, method: str = "") -> None:
        """Warn once if a process function has probably returned one result instead of yielding it: a tuple, Row, text
        or the like, whose parts are then the results, as in PyFlink. A declared type would refuse them."""
        if self.converter is not None or not returned or self._looked_at_parts:
            return
        if returned.__class__ is tuple and all(isinstance(part, (tuple, Row, list, dict)) for part in returned):
            return
        self._looked_at_parts = True
        name = method or getattr(self.calls[input_index], "__name__", "the function")
        warn_of_program(
            f"{name}() of {type(self.function).__name__} returned a {type(returned).__name__}, and each of its parts "
            f"is a result of its own [{self.where}]; write yield instead of return, or return a list of results",
            self.context.warnings,
        )

    def collect(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Emit results, of which some may be tagged for side outputs."""
        emit(values, timestamps, self.output, self.converter)

    def stop_error(self, what: str) -> ProgramError:
        """The error for a function that raised StopIteration, which would end the batch and lose its remaining
        records. ``what`` names the function."""
        return ProgramError(
            f"{what} raised StopIteration",
            where=self.where,
            expected="a value",
            hint="give next() a default, or catch the exception",
        )

    def none_error(self, what: str) -> TypeMismatchError:
        """The error for a function that returned None. ``what`` names the function."""
        return TypeMismatchError(
            f"{what} returned None", where=self.where, expected="a value", hint="drop records with flat_map or filter"
        )


def _callable(function: Function | Callable[..., Any], method: str) -> Callable[..., Any]:
    if isinstance(function, Function):
        call = getattr(function, method, None)
        if call is None:
            raise TypeMismatchError(
                f"{type(function).__name__} has no method {method}()", expected="a function with it"
            )
        return call  # type: ignore[no-any-return]
    if callable(function):
        return function
    raise TypeMismatchError(f"{function!r} is no function", expected=f"a callable or a Function with {method}()")
