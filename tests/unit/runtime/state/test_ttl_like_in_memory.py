"""State that expires gives the same wherever it lies: random programs on state in files, of which little or nothing
stays in memory, beside the same programs on state in memory."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from flinkish.common.time import Time
from flinkish.core.state import StateTtlConfig
from flinkish.runtime.exchange.buffer import EpochInfo
from flinkish.runtime.state import map_table
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.changelog import apply_changes
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.limits import ManagedMemory
from flinkish.runtime.state.saved.columns import stored_rows
from tests.unit.runtime.state.files.support import small_files
from tests.unit.runtime.state.test_ttl import descriptors

KINDS = ["value", "list", "map", "reducing", "aggregating"]
PROGRAMS_PER_TEST = 12

Call = tuple[str, Any, str, str, tuple[Any, ...]]


class Subtask:
    """The state of one subtask, in memory or in files, whose handles user code would hold."""

    def __init__(self, config: StateTtlConfig, expiring: list[str], directory: str | None, dice: random.Random) -> None:
        self._config, self._expiring, self._directory = config, expiring, directory
        in_files = directory is not None
        self._memory_bytes = dice.choice([1, 2_000, 10**9]) if in_files else 10**9
        self._inline_bytes = dice.choice([0, 500, 10**6]) if in_files else 10**9
        self.epoch = EpochInfo()
        self.open(None)

    def open(self, body: bytes | None) -> None:
        self.backend = KeyedStateBackend(
            "tested",
            self.epoch,
            directory=None if self._directory is None else StateDirectory(self._directory),
            inline_bytes=self._inline_bytes,
            memory=ManagedMemory(self._memory_bytes),
            recording=True,
            uid="uid",
        )
        self.backend.restore(body)
        self._handles: dict[tuple[str, Any], Any] = {}

    def call(self, call: Call) -> Any:
        kind, namespace, key, method, arguments = call
        handle = self._handles.get((kind, namespace))
        if handle is None:
            descriptor = descriptors()[kind]
            if kind in self._expiring:
                descriptor.enable_time_to_live(self._config)
            handle = self._handles[kind, namespace] = self.backend.partitioned_state(descriptor, namespace)
        self.backend.current_key = key
        return getattr(handle, method)(*arguments)

    def rows(self, body: bytes | None) -> dict[Any, list[Any]]:
        """State name, namespace and key -> what is stored, in the order in which user code sees it."""
        found: dict[Any, list[Any]] = defaultdict(list)
        for row in stored_rows(body, None if self._directory is None else StateDirectory(self._directory)):
            found[row.state, row.namespace, row.key].append(repr(row.value))
        return {entry: sorted(values) for entry, values in found.items()}


def random_config(dice: random.Random) -> StateTtlConfig:
    """Nothing is purged: when that happens depends on where state lies, and user code does not see it."""
    builder = StateTtlConfig.new_builder(Time.milliseconds(100)).disable_cleanup_in_background()
    if dice.random() < 0.5:
        builder.update_ttl_on_read_and_write()
    if dice.random() < 0.5:
        builder.return_expired_if_not_cleaned_up()
    return builder.build()


def random_call(dice: random.Random, kinds: list[str], namespaces: list[Any], keys: list[str]) -> Call:
    number, user_key = dice.randrange(1000), dice.randrange(8)
    some = [dice.randrange(1000) for _ in range(dice.randrange(4))]
    methods: dict[str, list[tuple[str, tuple[Any, ...]]]] = {
        "value": [("value", ()), ("update", (number,)), ("update", (number,))],
        "list": [("get", ()), ("add", (number,)), ("add", (number,)), ("add_all", (some,)), ("update", (some,))],
        "map": [
            *(("get", (user_key,)), ("contains", (user_key,)), ("keys", ()), ("items", ()), ("is_empty", ())),
            *(("put", (user_key, number)), ("put", (user_key, number)), ("put_all", (dict.fromkeys(some, number),))),
            *(("remove", (user_key,)), ("remove", (user_key,))),
        ],
        "reducing": [("get", ()), ("add", (number,)), ("add", (number,))],
        "aggregating": [("get", ()), ("add", (number,)), ("add", (number,))],
    }
    kind = dice.choice(kinds)
    method, arguments = dice.choice([*methods[kind], ("clear", ())])
    return kind, dice.choice(namespaces), dice.choice(keys), method, arguments


def seen(result: Any) -> Any:
    """What user code sees of a result."""
    return list(result) if hasattr(result, "__iter__") and not isinstance(result, str) else result


def run_program(seed: int, directory: Path) -> None:
    dice = random.Random(seed)
    config, expiring = random_config(dice), dice.sample(KINDS, dice.randrange(1, 6))
    kinds = dice.choice([KINDS, [dice.choice(KINDS)]])
    namespaces: list[Any] = dice.choice([[None], [None, "w1", "w2"], ["w1", "w2"]])
    keys = [f"k{number}" for number in range(dice.choice([1, 4, 30]))]
    in_memory = Subtask(config, expiring, None, dice)
    in_files = Subtask(config, expiring, str(directory), dice)
    changelog: dict[Any, Any] = {}
    now_ms = 1_000
    for epoch in range(1, dice.randrange(2, 12)):
        now_ms += dice.choice([0, 5, 30, 60, 120])
        for subtask in (in_memory, in_files):
            subtask.epoch.epoch, subtask.epoch.processing_time_ms = epoch, now_ms
        for _ in range(dice.randrange(4)):
            calls = [random_call(dice, kinds, namespaces, keys) for _ in range(dice.choice([1, 10, 60]))]
            if dice.random() < 0.8:
                in_files.backend.prefetch([key for _, _, key, _, _ in calls])
            else:
                in_files.backend.make_room()
            for call in calls:
                assert seen(in_files.call(call)) == seen(in_memory.call(call)), f"program {seed}, {call}"
        expected = in_memory.rows(in_memory.backend.snapshot())
        body = in_files.backend.snapshot()
        assert in_files.rows(body) == expected, f"program {seed}"
        for change in in_files.backend.take_changes():
            apply_changes(changelog, [change])
        told: dict[Any, list[Any]] = defaultdict(list)
        for rows in changelog.values():
            for row in rows:
                told[row.state, row.namespace, row.key].append(repr(row.value))
        assert {entry: sorted(values) for entry, values in told.items()} == expected, f"program {seed}"
        if dice.random() < 0.3:
            in_files.open(body)


@pytest.mark.parametrize(
    "first",
    [pytest.param(number * PROGRAMS_PER_TEST, marks=pytest.mark.nightly if number > 1 else ()) for number in range(10)],
)
def test_state_that_expires_is_the_same_in_files_as_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    monkeypatch.setattr(map_table, "FEW_ENTRIES", 3)
    with small_files():
        for seed in range(first, first + PROGRAMS_PER_TEST):
            run_program(seed, tmp_path / str(seed))
