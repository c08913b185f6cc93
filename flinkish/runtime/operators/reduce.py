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
        simple = not self.sees_state and not any(map(copier_of, values[:1]))
        results = self._reduce(keys, values, reduced) if simple else self._reduce_with_keys(keys, values, reduced)
        self.collect(results, timestamps)

    def _reduce(self, keys: list[Any], values: list[Any], reduced: dict[Any, Any]) -> list[Any]:
        """What each record gives; the reduced values are in the state."""
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
        """The same for mutable values, and for a function that can hold state handles: the current key is set before
        each call."""
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
    """``converter`` converts the results of a batch to the declared type."""

    function: ReduceFunction | Callable[[Any, Any], Any]
    converter: Converter | None = None
    keyed: bool = True

    def create(self) -> ReduceOperator:
        return ReduceOperator(self.function, "reduce", self.converter)
