"""The declared states that a task reports: name, kind and types of the states that its operators have asked for."""

from __future__ import annotations

from dataclasses import replace

from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.common.typeinfo.arrow import spark_type
from flinkish.core.state import StateDescriptor
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.operator_state import OperatorState
from flinkish.runtime.state.state_rows import LIST_STATE_KIND, OPERATOR_STATE_KIND, UNION_STATE_KIND, DeclaredState


def declared_state(
    uid: str, name: str, kind: str, descriptor: StateDescriptor | None, key_type: TypeInformation | None
) -> DeclaredState:
    """The `DeclaredState` of a state; ``descriptor``: None if user code has not asked for the state."""
    key = None if key_type is None else spark_type(key_type)
    if descriptor is None:
        return DeclaredState(uid, name, kind, key_type=key)
    map_key, value = descriptor.entry_types()
    return DeclaredState(uid, name, kind, spark_type(value), None if map_key is None else spark_type(map_key), key)


class DeclarationsOfTask:
    """Reports each declared state of a task once. Most states are declared when the task opens, some only while it
    processes its first record."""

    def __init__(
        self,
        head_uid: str,
        key_type: TypeInformation | None,
        keyed: KeyedStateBackend | None,
        states: dict[str, OperatorState],
    ) -> None:
        self._head_uid = head_uid
        self._key_type = key_type
        self._keyed = keyed
        self._states = states
        self._told: set[tuple[str, str]] = set()

    def new(self) -> tuple[DeclaredState, ...]:
        """The states that were declared since the last call."""
        return tuple(self._new_keyed() + self._new_operator_states())

    def _new_keyed(self) -> list[DeclaredState]:
        if self._keyed is None:
            return []
        found = []
        for name, (kind, descriptor) in self._keyed.declared.items():
            if self._is_new(self._head_uid, name):
                found.append(declared_state(self._head_uid, name, kind, descriptor, self._key_type))
        return found

    def _new_operator_states(self) -> list[DeclaredState]:
        found = [
            DeclaredState(uid, name, OPERATOR_STATE_KIND)
            for uid, state in self._states.items()
            for name in state.names()
            if self._is_new(uid, name)
        ]
        for uid, state in self._states.items():
            for name, (kind, descriptor) in state.known().items():
                if self._is_new(uid, name):
                    state_of_list = kind in (LIST_STATE_KIND, UNION_STATE_KIND)
                    declared = declared_state(uid, name, kind, descriptor, Types.LONG())
                    found.append(replace(declared, map_key_type="BIGINT") if state_of_list else declared)
        return found

    def _is_new(self, uid: str, name: str) -> bool:
        if (uid, name) in self._told:
            return False
        self._told.add((uid, name))
        return True
