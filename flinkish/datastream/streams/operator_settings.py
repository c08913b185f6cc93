"""The settings that a program may change on an operator after it was added, such as name, uid and parallelism.

Rule upheld here: settings belong to operators. A stream that only connects operators (a union, a repartitioned or keyed
stream) has none, and raises an error instead of changing an operator that the user did not mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from flinkish.common.arguments import check_instance
from flinkish.common.no_effect import warn_without_effect
from flinkish.core.error_handling import OnError
from flinkish.datastream.slot_sharing_group import SlotSharingGroup
from flinkish.datastream.streams.guardable import check_guardable
from flinkish.errors import ArgumentValueError
from flinkish.graph.stream_graph import MAX_PARALLELISM_LIMIT, ChainingStrategy, StreamNode

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
        """The name of the operator without the prefix that plans show."""
        return self._node.name.removeprefix(prefix_of(self._node))

    def set_name(self, name: str) -> None:
        """Set the name that plans and reports show. It must not be empty."""
        if not isinstance(name, str) or not name:
            raise self._error(f"the name {name!r}", "a non-empty str", "without a name it has one of its own")
        self._node.name = prefix_of(self._node) + name

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
