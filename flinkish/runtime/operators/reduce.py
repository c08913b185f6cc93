"""Rolling ``reduce`` on a keyed stream: for each record, emits the value reduced so far for its key.

The reduced value of a key is both kept in state and emitted. If it is a mutable object, a copy of it is emitted, so
that a reduce function may change and return its first argument.
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

#: Name of the reducing state that holds the reduced values.
REDUCE_STATE = "_reduce_state"


class ReduceOperator(UserFunctionOperator):
    """Calls a ReduceFunction. Each result has the timestamp of its record. A reduced value of None is an error: it has
    no meaning in Flink."""

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        keys = keys_of(self.context.key_selectors[input_index], values)
        table = self.keyed_state.table(REDUCE_STATE, "reducing")
        self.keyed_state.prefetch(keys)
        reduced = table.namespace(VOID_NAMESPACE)
        table.mark_all(VOID_NAMESPACE, keys)
        simple = not self.sees_state and not any(map(copier_of, values[:1]))
        results = self._reduce(keys, values, reduced) if simple else self._reduce_with_keys(keys, values, reduced)
        self.collect(results, timestamps)

    def _reduce(self, keys: list[Any], values: list[Any], reduced: dict[Any, Any]) -> list[Any]:
        """Reduce each record into ``reduced``, the state. Returns the value to emit for each record."""
        reduce, get = self.call, reduced.get
        results: list[Any] = []
        append = results.append
        for key, value in zip(keys, values, strict=True):
            left = get(key)
            if left is not None:
                value = reduce(left, value)
                if value is None:
                    raise self.none_error(f"the reduce function (key {key!r})")
            reduced[key] = value
            append(value)
        return results

    def _reduce_with_keys(self, keys: list[Any], values: list[Any], reduced: dict[Any, Any]) -> list[Any]:
        """`_reduce` for mutable values, of which copies are emitted, and for a function that can hold state handles:
        the current key is set before each call."""
        backend, reduce = self.keyed_state, self.call
        results: list[Any] = []
        for key, value in zip(keys, values, strict=True):
            left = reduced.get(key)
            if left is not None:
                backend.current_key = key
                value = reduce(left, value)
                if value is None:
                    raise self.none_error(f"the reduce function (key {key!r})")
            reduced[key] = value
            results.append(detached(value))
        return results


@dataclass
class ReduceFactory(OperatorFactoryBase):
    """Makes the operator of ``reduce``. ``converter`` converts the results of a batch to the declared type."""

    function: ReduceFunction | Callable[[Any, Any], Any]
    converter: Converter | None = None
    keyed: bool = True

    def create(self) -> ReduceOperator:
        return ReduceOperator(self.function, "reduce", self.converter)
