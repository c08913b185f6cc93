"""Which files may be deleted."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from flinkish.runtime.state.files.references import deletable, file_name, still_dropped


def test_a_file_stays_as_long_as_a_retained_epoch_refers_to_it() -> None:
    names = [file_name(1, "a"), file_name(5, "b"), file_name(5, "c")]
    referenced, dropped = {names[1]}, {names[0]: 6}
    # epoch 5 is retained, and its state refers to it
    assert deletable(names, referenced, dropped, epoch=6, retained_epochs=2) == set()
    assert deletable(names, referenced, dropped, epoch=7, retained_epochs=2) == {names[0], names[2]}


def test_what_nothing_ever_referred_to_goes_by_its_epoch_and_other_files_stay() -> None:
    names = [file_name(3, "a"), file_name(3, "b") + ".beef.part", file_name(9, "c"), "_SUCCESS", "notes.arrow"]
    assert deletable(names, set(), {}, epoch=5, retained_epochs=2) == set(names[:2])
    assert deletable(names, set(), {}, epoch=4, retained_epochs=2) == set()


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.integers(0, 3)), max_size=20), st.integers(1, 4))
def test_no_epoch_that_can_be_gone_back_to_misses_a_file(work: list[tuple[int, bool, int]], retained: int) -> None:
    disk: set[str] = set()
    referenced: set[str] = set()
    dropped: dict[str, int] = {}
    history: list[tuple[set[str], dict[str, int]]] = []
    for number, (written, fails, kept) in enumerate(work):
        epoch = len(history) + 1
        new = {file_name(epoch, f"{number}{index}") for index in range(written)}
        disk |= new
        if fails:
            # the epoch is run again, and what it wrote is referred to by nothing
            continue
        still = set(sorted(referenced)[:kept])
        dropped = {**dropped, **dict.fromkeys(referenced - still, epoch)}
        referenced = still | new
        disk -= deletable(disk, referenced, dropped, epoch, retained)
        dropped = still_dropped(dropped, disk)
        history.append((referenced, dropped))
        for old, _ in history[-retained:]:
            assert old <= disk
        needed = set().union(*(old for old, _ in history[-retained:]))
        oldest = epoch - retained + 1
        assert all(int(name.split("-")[0]) >= oldest for name in disk - needed)


# --- What the package costs whoever does not use it -----------------------------------------------------------------


def test_importing_it_imports_neither_numpy_nor_pyarrow() -> None:
    modules = "flinkish.runtime.state.files.references, flinkish.runtime.exchange.stable_hash"
    code = f"import sys, {modules}; sys.exit(', '.join(sorted({{'numpy', 'pyarrow'}} & set(sys.modules))) or 0)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
