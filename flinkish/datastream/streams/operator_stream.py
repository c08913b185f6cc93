"""OperatorStream: the base class of all streams, with the settings of the operator whose output a stream is."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, TypeVar

from flinkish.common.execution_config import ExecutionConfig
from flinkish.common.no_effect import no_java_object
from flinkish.common.typeinfo import TypeInformation
from flinkish.core.error_handling import OnError
from flinkish.datastream.slot_sharing_group import SlotSharingGroup
from flinkish.datastream.streams.operator_settings import OperatorSettings
from flinkish.errors import NotKeyedError, ProgramError, UnsupportedOperationError
from flinkish.graph.stream_graph import ChainingStrategy, StreamNode, Tap

if TYPE_CHECKING:
    from flinkish.datastream.stream_execution_environment import StreamExecutionEnvironment


def unsupported(stream: OperatorStream, what: str, method: str, hint: str) -> UnsupportedOperationError:
    """The error for a call that sets something on an operator, on a stream that is not the output of an operator."""
    return UnsupportedOperationError(
        f"{what} is not supported.",
        where=stream._place(method),
        expected="the stream that an operator returned",
        hint=hint,
    )


class OfKeyedStreams:
    """Stands in a stream without keys for methods that only keyed streams have: to use one raises NotKeyedError, which
    names the method, and ``instead``, the method for all records, if there is one. As an AttributeError it leaves
    ``hasattr`` right."""

    def __init__(self, instead: str = "") -> None:
        self._instead = instead
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, stream: OperatorStream | None, owner: type) -> NoReturn:
        if stream is None:
            raise AttributeError(f"type object {owner.__name__!r} has no attribute {self._name!r}")
        raise NotKeyedError(
            f"{self._name}() is called on a stream without keys",
            where=stream._place(self._name),
            expected="a stream that key_by() gave",
            hint=f"call key_by(lambda record: ...) first{self._instead and f', or {self._instead}(...)'}",
        )


S = TypeVar("S", bound="OperatorStream")


class OperatorStream:
    """Base class of DataStream, with its settings; DataStream adds the operators, the partitioning and the sinks.

    Setters change the operator whose output this stream is, and return the stream. On a stream that is not the output
    of an operator, such as a union, they raise ProgramError.
    """

    def __init__(
        self,
        env: StreamExecutionEnvironment,
        taps: Sequence[Tap],
        output_type: TypeInformation,
        operators: Sequence[StreamNode] = (),
    ) -> None:
        self._env = env
        self._taps = tuple(taps)
        self._type = output_type
        #: the operator whose output this stream is (a source and its watermark generator are two nodes), or () for a
        #: union, a repartitioned stream or a side output before its operator
        self._operators = tuple(operators)

    # --- properties of the stream -------------------------------------------------------------------------------

    def get_type(self) -> TypeInformation:
        """The type of the records."""
        return self._type

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment that the stream belongs to."""
        return self._env

    def get_execution_config(self) -> ExecutionConfig:
        """The execution settings of the stream's environment."""
        return self._env.get_config()

    def __repr__(self) -> str:
        names = ", ".join(tap.node.name for tap in self._taps)
        return f"<{type(self).__name__} of {self._type}, from {names}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the plan of the operators that the stream comes from."""
        with self._env._apart([tap.node for tap in self._taps]):
            plan = self._env.explain()
        return f"<p>{html.escape(repr(self))}</p><pre>{html.escape(plan)}</pre>"

    @property
    def _j_data_stream(self) -> NoReturn:
        """The stream of Java's Flink, which programs use although its name is private. Raises
        UnsupportedOperationError."""
        no_java_object(f"{type(self).__name__}._j_data_stream")

    # --- settings of its operator -------------------------------------------------------------------------------

    def get_name(self) -> str:
        """The name of the operator."""
        return self._settings("get_name").get_name()

    def name(self: S, name: str) -> S:
        """Set the name of the operator that plans and reports show. Raises ArgumentValueError if it is empty."""
        self._settings("name").set_name(name)
        return self

    def uid(self: S, uid: str) -> S:
        """Give the operator's state an identity that later versions of the program can be matched with.

        Each operator needs a uid of its own; a uid used twice raises DuplicateUidError when the job is submitted.
        """
        self._settings("uid").set_uid(uid)
        return self

    def set_uid_hash(self: S, uid_hash: str) -> S:
        """Take over the identity of an operator of an earlier job: 32 hexadecimal digits, which win over ``uid``."""
        self._settings("set_uid_hash").set_uid_hash(uid_hash)
        return self

    def set_parallelism(self: S, parallelism: int) -> S:
        """Set the number of subtasks of the operator. Raises ArgumentValueError below 1, except for -1, which means the
        parallelism of the environment."""
        self._settings("set_parallelism").set_parallelism(parallelism)
        return self

    def set_max_parallelism(self: S, max_parallelism: int) -> S:
        """Set the max parallelism of the operator, which is its number of key groups. Raises ArgumentValueError unless
        it is from 1 to 32768."""
        self._settings("set_max_parallelism").set_max_parallelism(max_parallelism)
        return self

    def force_non_parallel(self: S) -> S:
        """Set the parallelism to 1. It cannot be raised afterwards."""
        self._settings("force_non_parallel").force_non_parallel()
        return self

    def set_buffer_timeout(self: S, timeout_millis: int) -> S:
        """Set how long records may wait in a buffer, in ms. It has no effect, and a warning says so: the end of an
        epoch flushes all buffers."""
        self._settings("set_buffer_timeout").set_buffer_timeout(timeout_millis)
        return self

    def start_new_chain(self: S) -> S:
        """Begin a new chain with the operator: it does not share a task with the operator before it."""
        self._settings("start_new_chain").set_chaining(ChainingStrategy.HEAD)
        return self

    def disable_chaining(self: S) -> S:
        """Run the operator in a task of its own."""
        self._settings("disable_chaining").set_chaining(ChainingStrategy.NEVER)
        return self

    def on_error(self: S, on_error: OnError) -> S:
        """Set what happens to a record, timer or window for which the operator's function raises: the job fails (the
        default), it is skipped, or it goes to a side output as a `DeadLetter`. The outputs, state changes and timers of
        the failed call are undone. The number of failures is bounded: see `OnError`. Not in PyFlink.

        Example::

            dead = OutputTag("dead")
            parsed = lines.map(json.loads).uid("parse").on_error(OnError.dead_letter(dead))
            parsed.get_side_output(dead).map(lambda letter: letter.error_message).print()

        Raises:
            ProgramError: one call of the operator cannot fail alone (sources, sinks, watermark strategies and
                `map_batches`).
        """
        self._settings("on_error").set_on_error(on_error)
        return self

    def slot_sharing_group(self: S, slot_sharing_group: str | SlotSharingGroup) -> S:
        """Put the operator into a slot sharing group, by its name or with its resources. Operators of different groups
        never share a task. An operator without a group inherits that of its inputs, if they agree."""
        self._settings("slot_sharing_group").set_slot_sharing_group(slot_sharing_group)
        if isinstance(slot_sharing_group, SlotSharingGroup):
            self._env.register_slot_sharing_group(slot_sharing_group)
        return self

    def set_description(self: S, description: str) -> S:
        """Set a longer text that plans show."""
        self._settings("set_description").set_description(description)
        return self

    # --- the inside ---------------------------------------------------------------------------------------------

    def _place(self, method: str) -> str:
        """The place of a call in the program, for error messages."""
        return f"{type(self).__name__}.{method}() after " + " and ".join(f"'{tap.node.name}'" for tap in self._taps)

    def _settings(self, method: str) -> OperatorSettings:
        return OperatorSettings(self._settings_nodes(method))

    def _settings_nodes(self, method: str) -> Sequence[StreamNode]:
        if not self._operators:
            raise ProgramError(
                f"{method}() on a stream that is no operator's output",
                where="after " + " and ".join(f"'{tap.node.name}'" for tap in self._taps),
                expected="the stream that an operator returned",
                hint=f"union and repartitioning are ways between operators: call {method}() before or behind them",
            )
        return self._operators
