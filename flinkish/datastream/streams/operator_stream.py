"""OperatorStream: the base class of all streams, with the settings that a program may change on the operator whose
output a stream is, such as name, uid and parallelism.

Rule upheld here: settings belong to operators. A stream that only connects operators (a union, a repartitioned or keyed
stream) has none, and raises an error instead of changing an operator that the user did not mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeVar

from flinkish.common.arguments import check_instance
from flinkish.common.execution_config import ExecutionConfig
from flinkish.common.html_text import facts, paragraph, table
from flinkish.common.no_effect import no_java_object, warn_without_effect
from flinkish.common.typeinfo import RowTypeInfo, TypeInformation
from flinkish.core.checkpointed_function import OnError
from flinkish.datastream.slot_sharing_group import SlotSharingGroup
from flinkish.errors import (
    ArgumentValueError,
    FlinkishError,
    NotKeyedError,
    ProgramError,
    UnsupportedOperationError,
)
from flinkish.graph.stream_graph import MAX_PARALLELISM_LIMIT, ChainingStrategy, StreamNode, Tap
from flinkish.runtime.operators.async_wait import AsyncWaitFactory
from flinkish.runtime.operators.broadcast import BroadcastProcessFactory, KeyedBroadcastProcessFactory
from flinkish.runtime.operators.functions import (
    CoFlatMapFactory,
    CoMapFactory,
    CoProcessFactory,
    FilterFactory,
    FlatMapFactory,
    MapFactory,
    ProcessFactory,
)
from flinkish.runtime.operators.interval_join import IntervalJoinFactory
from flinkish.runtime.operators.keyed_process import KeyedCoProcessFactory, KeyedProcessFactory
from flinkish.runtime.operators.reduce import ReduceFactory, RollingAggregationFactory
from flinkish.runtime.operators.watermarks import TimestampsAndWatermarksFactory
from flinkish.runtime.operators.window.factory import WindowOperatorFactory

if TYPE_CHECKING:
    from flinkish.datastream.stream_execution_environment import StreamExecutionEnvironment


_GUARDABLE = (
    AsyncWaitFactory,
    BroadcastProcessFactory,
    CoFlatMapFactory,
    CoMapFactory,
    CoProcessFactory,
    FilterFactory,
    FlatMapFactory,
    IntervalJoinFactory,
    KeyedBroadcastProcessFactory,
    KeyedCoProcessFactory,
    KeyedProcessFactory,
    MapFactory,
    ProcessFactory,
    ReduceFactory,
    RollingAggregationFactory,
    WindowOperatorFactory,
)


def check_guardable(node: StreamNode) -> None:
    """Raises ProgramError for an operator that cannot have ``on_error``; the message says what to do instead.

    Operators may have it whose function is called for one record, timer or window at a time, so that a failed call can
    be undone before the next one.
    """
    if isinstance(node.factory, _GUARDABLE):
        return
    reason, hint = _why_not(node)
    raise ProgramError(
        f"on_error() on an operator that cannot have it: {reason}",
        where=f"operator '{node.name}' (uid {node.effective_uid})",
        expected="map, flat_map, filter, process, reduce, sum, min, max, a window, a join or an asynchronous call",
        hint=hint,
    )


def _why_not(node: StreamNode) -> tuple[str, str]:
    if node.source is not None:
        return "a source reads what it cannot read again", "let it give texts or bytes, and parse them in a map"
    if node.sink is not None:
        return (
            "a sink writes an epoch as a whole, so there is no one record that fails alone",
            "give the records their last form in a map before it, and let that have on_error()",
        )
    if isinstance(node.factory, TimestampsAndWatermarksFactory):
        return "a record without a timestamp has no place in time", "parse the records in a map before it"
    return (
        "it works on many records at once, and one call concerns all of them",
        "check the records in a map before it, or let it emit what it has and do the rest in a map behind it",
    )


_UID_HASH = re.compile(r"[0-9A-Fa-f]{32}")
_DEFAULT_PARALLELISM = -1


def prefix_of(node: StreamNode) -> str:
    """The prefix of the operator's name in plans, as in Flink: ``Source: ``, ``Sink: `` or none."""
    if node.source is not None:
        return "Source: "
    return "Sink: " if node.sink is not None else ""


class OperatorSettings:
    """The settings of one operator. A source and its watermark generator are two nodes, but one operator to the user:
    the first node has the name and the uid, and both have the same parallelism.

    Values that are not allowed raise ArgumentValueError, which is also a ProgramError and a ValueError.
    """

    def __init__(self, nodes: Sequence[StreamNode]) -> None:
        self._node = nodes[0]
        self._nodes = nodes

    def get_name(self) -> str:
        """The name of the operator as PyFlink has it, without the prefix that plans show."""
        return self._node.pyflink_name or self._node.name.removeprefix(prefix_of(self._node))

    def set_name(self, name: str) -> None:
        """Set the name that plans and reports show. It must not be empty."""
        if not isinstance(name, str) or not name:
            raise self._error(f"the name {name!r}", "a non-empty str", "without a name it has one of its own")
        self._node.name, self._node.pyflink_name = prefix_of(self._node) + name, None

    def set_uid(self, uid: str) -> None:
        """Set the uid, the identity of the operator's state. It must not be empty."""
        if not isinstance(uid, str) or not uid:
            raise self._error(f"the uid {uid!r}", "a non-empty str", "choose a short name that never changes")
        self._node.uid = uid

    def set_uid_hash(self, uid_hash: str) -> None:
        """Set the uid hash, an identity taken from the logs of an earlier job. It must have 32 hexadecimal digits."""
        if not isinstance(uid_hash, str) or not _UID_HASH.fullmatch(uid_hash):
            raise self._error(
                f"the uid hash {uid_hash!r}",
                "a string of 32 characters between 0-9 and a-f",
                "take it from the log of the earlier job, or call uid(...) with a name",
            )
        self._node.uid_hash = uid_hash.lower()

    def set_parallelism(self, parallelism: int) -> None:
        """Set the number of subtasks, at least 1, or -1 for the parallelism of the environment. An operator that cannot
        run in parallel accepts only 1."""
        if not isinstance(parallelism, int) or (parallelism < 1 and parallelism != _DEFAULT_PARALLELISM):
            raise self._error(
                f"the parallelism {parallelism!r}", "a parallelism of at least 1", "-1 is the environment's parallelism"
            )
        if not self._node.parallelism_changeable and parallelism != 1:
            raise self._error(
                f"the parallelism {parallelism}",
                "The parallelism of non parallel operator must be 1",
                "call rebalance() on the stream, and set the parallelism of the next operator",
            )
        self._each(lambda node: setattr(node, "parallelism", None if parallelism < 1 else parallelism))

    def set_max_parallelism(self, max_parallelism: int) -> None:
        """Set the max parallelism, which is the number of key groups, from 1 to 32768. An operator that cannot run in
        parallel accepts only 1."""
        if not isinstance(max_parallelism, int) or not 1 <= max_parallelism <= MAX_PARALLELISM_LIMIT:
            raise self._error(
                f"the max parallelism {max_parallelism!r}",
                f"a number from 1 to {MAX_PARALLELISM_LIMIT}",
                "leave it out: it follows from the parallelism then",
            )
        if not self._node.parallelism_changeable and max_parallelism != 1:
            raise self._error(
                f"the max parallelism {max_parallelism}",
                "The maximum parallelism of non parallel operator must be 1",
                "call rebalance() on the stream, and set the max parallelism of the next operator",
            )
        self._each(lambda node: setattr(node, "max_parallelism", max_parallelism))

    def force_non_parallel(self) -> None:
        """Set the parallelism and the max parallelism to 1, and refuse other values from now on."""
        self.set_parallelism(1)
        self.set_max_parallelism(1)
        self._each(lambda node: setattr(node, "parallelism_changeable", False))

    def set_description(self, description: str) -> None:
        """Set a longer text that plans show."""
        self._node.description = description

    def set_chaining(self, strategy: ChainingStrategy) -> None:
        """Set whether the operator may share a task with its neighbours."""
        self._each(lambda node: setattr(node, "chaining", strategy))

    def set_buffer_timeout(self, timeout_millis: int) -> None:
        """Check a buffer timeout in ms, at least -1, and warn that it has no effect."""
        if not isinstance(timeout_millis, int) or timeout_millis < -1:
            raise self._error(
                f"the buffer timeout {timeout_millis!r} ms", "-1, 0 or more", "leave it out: it has no effect here"
            )
        warn_without_effect("set_buffer_timeout", "the end of an epoch flushes all buffers")

    def set_on_error(self, on_error: OnError) -> None:
        """Set what happens to records and timers for which the function raises. Raises ProgramError if the operator
        cannot have ``on_error``."""
        check_instance(on_error, OnError, "on_error is", "on_error()", "such as OnError.dead_letter(tag)")
        if on_error.action == "fail":
            self._node.on_error = None
            return
        check_guardable(self._node)
        self._node.on_error = on_error

    def set_slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> None:
        """Set the slot sharing group: operators of different groups never share a task. Raises ArgumentTypeError unless
        it is a SlotSharingGroup or the name of one."""
        group = (
            slot_sharing_group.get_name() if isinstance(slot_sharing_group, SlotSharingGroup) else slot_sharing_group
        )
        check_instance(
            group, str, "the slot sharing group is", self._where(), "its name", "a SlotSharingGroup, or the name of one"
        )
        self._each(lambda node: setattr(node, "slot_sharing_group", group))

    def _each(self, change: Callable[[StreamNode], None]) -> None:
        for node in self._nodes:
            change(node)

    def _error(self, what: str, expected: str, hint: str) -> ArgumentValueError:
        return ArgumentValueError(f"{what} cannot be set", where=self._where(), expected=expected, hint=hint)

    def _where(self) -> str:
        return f"operator '{self._node.name}' (uid {self._node.effective_uid})"


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
        """What a notebook shows: the operator with its uid, the type of the records, and the graph up to here."""
        node = self._operators[0] if self._operators else None
        uid = "" if node is None else node.effective_uid + ("" if node.has_own_uid else " (generated)")
        known = {"type": self._type, "operator": getattr(node, "name", ""), "uid": uid}
        try:
            with self._env._apart([tap.node for tap in self._taps]):
                drawn = self._env._drawn()
        except FlinkishError as error:
            drawn = paragraph(error)
        row = self._type if isinstance(self._type, RowTypeInfo) else None
        fields = table(("field", "type"), zip(row.get_field_names(), row.get_field_types())) if row else ""
        return paragraph(repr(self)) + facts(known) + fields + drawn

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
