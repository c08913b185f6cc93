"""Files of state against a dict, through any sequence of epochs and compactions."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.errors import InternalError
from flinkish.runtime.state.files.compaction import StateFiles
from flinkish.runtime.state.files.directory import StateDirectory
from flinkish.runtime.state.files.references import FileSet
from flinkish.runtime.state.files.rows import NO_TIME, PUT, RowsBuilder
from flinkish.runtime.stored.pickles import dumps_data
from flinkish.runtime.stored.reader import read_value
from tests.support.profiles import examples
from tests.unit.runtime.state.files.support import Model, encoded, same_value, small_files

#: 1, 1.0 and True are one key with three encodings
KEYS: list[Any] = [*range(12), 1.0, True, "a", "b"]
ENTRIES: list[Any] = [None, *range(6), True, 2.0]
STATES = ["one", "other"]

changes = st.one_of(
    st.tuples(
        st.just("put"),
        st.sampled_from(STATES),
        st.sampled_from(KEYS),
        st.sampled_from(ENTRIES),
        st.binary(max_size=300),
        st.one_of(st.none(), st.integers(0, 100)),
    ),
    st.tuples(st.just("delete"), st.sampled_from(STATES), st.sampled_from(KEYS), st.sampled_from(ENTRIES)),
    st.tuples(st.just("clear"), st.sampled_from(STATES), st.sampled_from(KEYS)),
)
#: changes of an epoch, and how it compacts
epochs = st.lists(
    st.tuples(st.lists(changes, max_size=12), st.sampled_from(["no", "yes", "little", "sweep"])), max_size=12
)


def run_epoch(files: StateFiles, held: FileSet, model: Model, epoch: int, work: list[Any], compacting: str) -> FileSet:
    for name, *arguments in work:
        getattr(model, name)(*arguments)
    held = files.add(held, model.changes(), epoch)
    if compacting != "no":
        budget = 1 if compacting == "little" else None
        held = files.compact(held, epoch, budget_bytes=budget, sweep=compacting == "sweep")
    # what travels from epoch to epoch is plain data
    return FileSet.decode(read_value(dumps_data(held.encode())))


def check_lookups(files: StateFiles, held: FileSet, model: Model) -> None:
    for state in [*STATES, "unknown"]:
        pairs = [(key, entry) for key in KEYS for entry in ENTRIES]
        keys, entries = [key for key, _ in pairs], [entry for _, entry in pairs]
        found = files.lookup(
            held,
            state,
            model.hashes(keys),
            [encoded(key) for key in keys],
            [encoded(entry) for entry in entries],
            model.entry_hashes(entries),
        )
        for (key, entry), value, order, time in zip(
            pairs, found.values, found.orders.tolist(), found.times.tolist(), strict=True
        ):
            expected = model.groups.get((state, key), {}).get(entry)
            if expected is None:
                assert value is None
            else:
                assert value is not None
                assert (order, None if time == NO_TIME else time, pickle.loads(value)) == expected


def check_groups(files: StateFiles, held: FileSet, model: Model) -> None:
    keys = list(dict.fromkeys(KEYS))
    for state in STATES:
        found = files.groups(held, state, model.hashes(keys), [encoded(key) for key in keys])
        for key, group in zip(keys, found, strict=True):
            entries = list(map(pickle.loads, group.entries))
            values = list(map(pickle.loads, group.values))
            expected = sorted(model.groups.get((state, key), {}).items(), key=lambda item: item[1][0])
            assert list(zip(entries, zip(group.orders, group.times, values))) == expected
            batches = list(files.group_batches(held, state, int(model.hashes([key])[0]), encoded(key), batch_rows=2))
            assert [entry for batch in batches for entry in batch.entries] == group.entries
            assert all(len(batch.entries) <= 2 for batch in batches)


def check_scan(files: StateFiles, held: FileSet, model: Model) -> None:
    seen: dict[tuple[str, Any], dict[Any, Any]] = {}
    last = (0, 0)
    for rows in files.scan(held):
        assert (rows.op == PUT).all()
        positions = list(zip(rows.hash.tolist(), rows.entry_hash.tolist()))
        assert [last, *positions] == sorted([last, *positions])
        last = positions[-1]
        for place in range(len(rows)):
            key, entry = pickle.loads(rows.id[place].as_py()), pickle.loads(rows.entry[place].as_py())
            group = seen.setdefault((rows.names[rows.state[place]], key), {})
            assert entry not in group
            time = int(rows.time[place])
            group[entry] = (
                int(rows.order[place]),
                None if time == NO_TIME else time,
                pickle.loads(rows.value[place].as_py()),
            )
    assert seen == {address: group for address, group in model.groups.items() if group}


@settings(max_examples=examples(20), deadline=None)
@given(epochs, st.sampled_from([1, 2, 8]))
def test_files_say_what_a_dict_says_however_far_compaction_is(work: list[Any], hashes: int) -> None:
    with tempfile.TemporaryDirectory() as folder, small_files():
        files, held, model = StateFiles(StateDirectory(folder), same_value, same_value), FileSet(), Model(hashes)
        for epoch, (of_epoch, compacting) in enumerate(work, 1):
            held = run_epoch(files, held, model, epoch, of_epoch, compacting)
            check_lookups(files, held, model)
            check_groups(files, held, model)
            check_scan(files, held, model)
            assert held.live_rows_at_most >= sum(map(len, model.groups.values()))


def test_an_entry_that_is_written_twice_in_one_epoch_is_refused(tmp_path: Path) -> None:
    files, model = StateFiles(StateDirectory(str(tmp_path)), same_value, same_value), Model(1)
    rows = RowsBuilder()
    rows.clear("one", model.hashes([1, 2]), [encoded(1), encoded(2)])
    rows.put("one", model.hashes([1, 2]), [encoded(1), encoded(2)], [b"a", b"b"])
    held = files.add(FileSet(), rows.build(), 1)
    assert held.rows == 2
    rows.put("one", model.hashes([True]), [encoded(True)], [b"c"])
    for there in (FileSet(), held):
        with pytest.raises(InternalError, match="epoch 2 writes an entry of the state twice"):
            files.add(there, rows.build(), 2)
