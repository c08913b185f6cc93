"""What all streams have in common: where they come from, and the settings of the operator that they leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from flinkish.common.execution_config import ExecutionConfig
from flinkish.common.typeinfo import TypeInformation
from flinkish.core.error_handling import OnError
from flinkish.datastream.slot_sharing_group import SlotSharingGroup
from flinkish.datastream.streams.operator_settings import OperatorSettings
from flinkish.errors import ProgramError, UnsupportedOperationError
from flinkish.graph.stream_graph import ChainingStrategy, StreamNode, Tap

if TYPE_CHECKING:
    from flinkish.datastream.stream_execution_environment import StreamExecutionEnvironment


def unsupported(stream: OperatorStream, what: str, method: str, hint: str) -> UnsupportedOperationError:
    """The error for a setting of an operator on a stream that is no operator's output."""
    return UnsupportedOperationError(
        f"{what} is not supported.",
        where=stream._place(method),
        expected="the stream that an operator returned",
        hint=hint,
    )


S = TypeVar("S", bound="OperatorStream")


class OperatorStream:
    """Base of DataStream: its settings. Operators, ways and ends are DataStream's."""

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
        #: the operator that this stream leaves (a source with its watermark generator is two nodes); () for mere ways
        self._operators = tuple(operators)

    # --- about the stream ---------------------------------------------------------------------------------------

    def get_type(self) -> TypeInformation:
        """The type of the records."""
        return self._type

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment that the stream belongs to."""
        return self._env

    def get_execution_config(self) -> ExecutionConfig:
        """The environment's configuration."""
        return self._env.get_config()

    # --- about its operator -------------------------------------------------------------------------------------

    def get_name(self) -> str:
        """The operator's name."""
        return self._settings("get_name").get_name()

    def name(self: S, name: str) -> S:
        """Name the operator, for plans and reports."""
        self._settings("name").set_name(name)
        return self

    def uid(self: S, uid: str) -> S:
        """Give the operator's state an identity that later versions of the program can be matched with.

        Each operator needs another one (DuplicateUidError when the job is submitted).
        """
        self._settings("uid").set_uid(uid)
        return self

    def set_uid_hash(self: S, uid_hash: str) -> S:
        """Take over the identity of an operator of an earlier job: 32 hexadecimal digits. Goes before ``uid``."""
        self._settings("set_uid_hash").set_uid_hash(uid_hash)
        return self

    def set_parallelism(self: S, parallelism: int) -> S:
        """Number of subtasks of the operator. Raises ProgramError for a number below 1 (but -1: the environment's)."""
        self._settings("set_parallelism").set_parallelism(parallelism)
        return self

    def set_max_parallelism(self: S, max_parallelism: int) -> S:
        """Number of key groups of the operator: from 1 to 32768 (ProgramError)."""
        self._settings("set_max_parallelism").set_max_parallelism(max_parallelism)
        return self

    def force_non_parallel(self: S) -> S:
        """One subtask; the parallelism cannot be raised afterwards."""
        self._settings("force_non_parallel").force_non_parallel()
        return self

    def set_buffer_timeout(self: S, timeout_millis: int) -> S:
        """How long records may wait to be sent. Changes nothing, and says so: an epoch's end flushes all buffers."""
        self._settings("set_buffer_timeout").set_buffer_timeout(timeout_millis)
        return self

    def start_new_chain(self: S) -> S:
        """The operator begins a task of its own, together with what comes after it."""
        self._settings("start_new_chain").set_chaining(ChainingStrategy.HEAD)
        return self

    def disable_chaining(self: S) -> S:
        """The operator has a task of its own."""
        self._settings("disable_chaining").set_chaining(ChainingStrategy.NEVER)
        return self

    def on_error(self: S, on_error: OnError) -> S:
        """What becomes of a record, timer or window for which the operator's function raises: the job fails (the
        default), it is skipped, or it goes to a side output as a `DeadLetter`. The outputs, the state and the timers of
        the failed call are undone. How many may fail is bounded: see `OnError`.

        Example::

            dead = OutputTag("dead")
            parsed = lines.map(json.loads).uid("parse").on_error(OnError.dead_letter(dead))
            parsed.get_side_output(dead).map(lambda letter: letter.error_message).print()

        Raises:
            ProgramError: the operator is none of which one call can fail alone (a source, a sink, a watermark strategy,
                `map_batches` or a rolling aggregation).
        """
        self._settings("on_error").set_on_error(on_error)
        return self

    def slot_sharing_group(self: S, slot_sharing_group: str | SlotSharingGroup) -> S:
        """Never in one task with operators of other groups; those behind it inherit the group."""
        self._settings("slot_sharing_group").set_slot_sharing_group(slot_sharing_group)
        if isinstance(slot_sharing_group, SlotSharingGroup):
            self._env.register_slot_sharing_group(slot_sharing_group)
        return self

    def set_description(self: S, description: str) -> S:
        """A longer text for plans."""
        self._settings("set_description").set_description(description)
        return self

    # --- the inside ---------------------------------------------------------------------------------------------

    def _place(self, method: str) -> str:
        """Where a call is, for messages."""
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
