"""Rolling ``reduce`` on a keyed stream: for each record, emits the value reduced so far for its key.

The reduced value of a key is both kept in state and emitted. If it is a mutable object, a copy of it is emitted, so
that a reduce function may change and return its first argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flinkish.common.arguments import abbreviated
from flinkish.common.detach import SHARED, detached, handed_over
from flinkish.core.functions import ReduceFunction
from flinkish.runtime.exchange.keys import keys_of
from flinkish.runtime.operator import OperatorFactoryBase
from flinkish.runtime.operators.user_function_operator import UserFunctionOperator
from flinkish.runtime.outputs import Converter
from flinkish.runtime.state.state_rows import VOID_NAMESPACE

#: Name of the reducing state that holds the reduced values.
REDUCE_STATE = "_reduce_state"


class ReduceOperator(UserFunctionOperator):
    """Calls a ReduceFunction. Each result has the timestamp of its record. A reduced value of None is an error: it has
    no meaning in Flink."""

    #: whether the function is one of ours, which refers to nothing that it returns
    keeps_nothing = False

    def process_batch(self, values: list[Any], timestamps: list[int] | None, input_index: int = 0) -> None:
        keys = keys_of(self.context.key_selectors[input_index], values)
        table = self.keyed_state.table(REDUCE_STATE, "reducing")
        self.keyed_state.prefetch(keys)
        reduced = table.namespace(VOID_NAMESPACE)
        table.mark_all(VOID_NAMESPACE, keys)
        self.collect(self._reduce(keys, values, reduced), timestamps)

    def _reduce(self, keys: list[Any], values: list[Any], reduced: dict[Any, Any]) -> list[Any]:
        """Reduce each record into ``reduced``, the state. Returns the value to emit for each record."""
        reduce, get, enter = self.call, reduced.get, self.keyed_state.loans.enter
        sees_state = self.context.may_have_keyed_state()
        keeps_nothing, shared = self.keeps_nothing, self.shared
        results: list[Any] = []
        append = results.append
        arriving = iter(values)
        for key, value in zip(keys, arriving, strict=True):
            left = get(key)
            if left is None:
                result = value
            else:
                if sees_state:
                    enter(key)
                result = reduce(left, value)
                if result is None:
                    raise self.none_error(f"the reduce function (key {abbreviated(key)})")
            if type(result) in shared:
                reduced[key] = result
            else:
                # most are tuples of what cannot change, for which a call of `detached` is too slow
                emitted = result
                for item in result if type(result) is tuple else (result,):
                    if type(item) not in SHARED:
                        emitted = detached(result)
                        # a further reference to a part would make it seem held
                        del item
                        break
                if emitted is not result and not keeps_nothing and left is not None:
                    # the state refers to its value, and the batch to its record, if the function returns one of them
                    result = handed_over(result, 2 if result is left or result is value else 0)
                reduced[key], result = result, emitted
            append(result)
        return results


@dataclass
class ReduceFactory(OperatorFactoryBase):
    """Makes the operator of ``reduce``. ``converter`` converts the results of a batch to the declared type."""

    function: ReduceFunction | Callable[[Any, Any], Any]
    converter: Converter | None = None
    keyed: bool = True
    reads_timestamps: bool = False

    def create(self) -> ReduceOperator:
        return ReduceOperator(self.function, "reduce", self.converter)
