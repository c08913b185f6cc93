"""Rolling ``reduce`` on a keyed stream: each record gives the value reduced so far for its key.

The reduced value of a key is in state and goes on to the next operator. Where it is a mutable object, what goes on is
a copy, so that a reduce function may change and return its first argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flinkish.core.functions import ReduceFunction
from flinkish.runtime.list_keys import keys_of
from flinkish.runtime.operator import OperatorFactoryBase
from flinkish.runtime.operators.user_function_operator import UserFunctionOperator
from flinkish.runtime.side_outputs import Converter
from flinkish.runtime.state.detach import copier_of, detached
from flinkish.runtime.state.keyed_state_kinds import VOID_NAMESPACE

#: Name of the state.
REDUCE_STATE = "_reduce_state"


class ReduceOperator(UserFunctionOperator):
    """Each result has the timestamp of its record. A reduced value of None is an error: it has no meaning in Flink."""

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        keys = keys_of(self.context.key_selectors[input_index], values)
        table = self.keyed_state.table(REDUCE_STATE, "reducing")
        self.keyed_state.prefetch(keys)
        reduced = table.namespace(VOID_NAMESPACE)
        table.mark_all(VOID_NAMESPACE, keys)
        if self.sees_state:
            self._reduce_with_keys(keys, values, reduced)
        else:
            self._reduce(keys, values, reduced)
        self.collect(values, timestamps)

    def _reduce(self, keys: list[Any], values: list[Any], reduced: dict[Any, Any]) -> None:
        """Put the reduced values into ``values``, which is ours, and into the state."""
        reduce = self.call
        # one look decides for the batch: a stream has one type
        mutable = bool(values) and copier_of(values[0]) is not None
        for position, (key, value) in enumerate(zip(keys, values, strict=True)):
            if key in reduced:
                values[position] = value = reduce(reduced[key], value)
                if value is None:
                    raise self.none_error(f"the reduce function (key {key!r})")
            reduced[key] = value
            if mutable:
                values[position] = detached(value)

    def _reduce_with_keys(self, keys: list[Any], values: list[Any], reduced: dict[Any, Any]) -> None:
        """The same for a function that can hold state handles: the current key is set before each call."""
        backend, reduce = self.keyed_state, self.call
        for position, (key, value) in enumerate(zip(keys, values, strict=True)):
            if key in reduced:
                backend.current_key = key
                value = reduce(reduced[key], value)
                if value is None:
                    raise self.none_error(f"the reduce function (key {key!r})")
            reduced[key] = value
            values[position] = detached(value)


@dataclass
class ReduceFactory(OperatorFactoryBase):
    """``converter`` converts the results of a batch to the declared type."""

    function: ReduceFunction | Callable[[Any, Any], Any]
    converter: Converter | None = None
    keyed: bool = True

    def create(self) -> ReduceOperator:
        return ReduceOperator(self.function, "reduce", self.converter)
