"""Map state in ascending order, as the interval join reads it, against a plain dict."""

from __future__ import annotations

import tempfile
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.runtime.exchange.buffer import EpochInfo
from flinkish.runtime.state.backend import KeyedStateBackend
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.map_table import MapTable

KEY = "user"
user_keys = st.integers(0, 12)
steps = st.one_of(
    st.tuples(st.just("put"), user_keys),
    st.tuples(st.just("put"), user_keys),
    st.tuples(st.just("between"), user_keys, user_keys),
    st.tuples(st.just("discard"), user_keys),
    st.tuples(st.just("discard_until"), user_keys),
    st.tuples(st.sampled_from(["barrier", "release", "begin", "undo", "commit"])),
)


@given(st.lists(steps, max_size=40), st.booleans())
@settings(deadline=None)
def test_entries_between_two_keys_are_those_of_a_dict_across_barriers_releases_and_undone_calls(
    events: list[Any], in_files: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = StateDirectory(folder) if in_files else None
        backend = KeyedStateBackend("tested", EpochInfo(), directory=directory, inline_bytes=0, undone=True)
        backend.restore(None)
        log = backend.undo_log
        assert log is not None
        expected: dict[int, int] = {}
        before: dict[int, int] | None = None
        for number, (what, *arguments) in enumerate(events):
            table = cast(MapTable, backend.table("map", "map"))
            if what == "put":
                table.put(None, KEY, {arguments[0]: number})
                expected[arguments[0]] = number
            elif what == "between":
                first, last = arguments
                wanted = sorted(item for item in expected.items() if first <= item[0] <= last)
                assert table.between(None, KEY, first, last) == wanted
            elif what == "discard":
                table.discard(None, KEY, arguments[0])
                expected.pop(arguments[0], None)
            elif what == "discard_until":
                left = table.discard_until(None, KEY, arguments[0])
                expected = {user_key: value for user_key, value in expected.items() if user_key > arguments[0]}
                assert left == min(expected, default=None)
            elif what == "begin" and before is None:
                log.begin()
                before = dict(expected)
            elif what == "undo" and before is not None:
                log.undo()
                expected, before = before, None
            elif what == "commit" and before is not None:
                log.commit()
                before = None
            elif what == "barrier" and before is None:
                backend.restore(backend.snapshot())
            elif what == "release" and before is None:
                backend.release()
        table = cast(MapTable, backend.table("map", "map"))
        assert table.between(None, KEY, 0, 12) == sorted(expected.items())
        whole = table.whole(None, KEY)
        assert (whole.pairs() if whole is not None else {}) == expected
