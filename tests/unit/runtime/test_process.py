"""What the operating system says of a worker's process, and what is left out where it says nothing."""

from __future__ import annotations

import ast
import os
import pwd
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flinkish.common.memory import memory_of_machine
from flinkish.runtime import process
from flinkish.runtime.process import (
    ExecutorProcess,
    executor_of,
    jvm_memory,
    new_figures,
    resident_bytes,
)

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")


@pytest.fixture(autouse=True)
def long_ago(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody has asked for the figures of this process within the last second."""
    executor_of.cache_clear()
    monkeypatch.setattr(process, "LOOK_S", 0.0)
    yield
    executor_of.cache_clear()


def test_a_process_without_an_executor_knows_its_own_memory() -> None:
    figures = new_figures()
    assert 1 << 20 < figures["rss"] < figures["physical"]
    assert "cores" not in figures


def test_figures_are_given_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LOOK_S", 3600.0)
    new_figures()
    assert new_figures() == {}


def test_a_worker_below_an_executor_knows_its_cores_and_its_memory() -> None:
    # a process whose command line is that of an executor, and below it one that says what it knows
    asks = "from flinkish.runtime.process import new_figures; print(new_figures())"
    starts = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {asks!r}], check=True)"
    executor = subprocess.run(
        [sys.executable, "-c", starts, "Backend", "--executor-id", "7", "--cores", "3", ""],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    figures = ast.literal_eval(executor.stdout)
    assert figures["cores"] == 3
    assert figures["jvm_rss"] > 1 << 20
    assert figures["rss"] > 1 << 20


@pytest.mark.parametrize(
    ("command", "known"),
    [
        (("java", "--executor-id", "12", "--cores", "4"), ("12", 4)),
        (("java", "--executor-id", "12", "--cores", "many"), ("12", None)),
        (("java", "--executor-id", "12"), ("12", None)),
        (("java", "--executor-id"), (None, None)),
        ((), (None, None)),
    ],
)
def test_what_a_command_line_does_not_say_is_not_known(
    command: tuple[str, ...], known: tuple[str | None, int | None]
) -> None:
    found = ExecutorProcess(1, command)
    assert (found.id, found.cores) == known


def test_without_proc_only_the_memory_of_the_machine_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(path: str, *_: object) -> object:
        raise FileNotFoundError(path)

    monkeypatch.setattr("builtins.open", nowhere)
    monkeypatch.setattr(Path, "read_text", nowhere)
    monkeypatch.setattr(Path, "read_bytes", nowhere)
    assert new_figures() == {"physical": memory_of_machine()}
    monkeypatch.undo()


def test_the_memory_of_a_process_that_has_gone_is_not_known() -> None:
    assert resident_bytes(2**30) is None


def counters(order: str, *entries: tuple[str, int]) -> bytes:
    """The counters of a JVM as HotSpot writes them."""
    parts = []
    for name, value in entries:
        padded = (name.encode() + b"\0").ljust((len(name) + 8) // 8 * 8 + 4, b"\0")
        head = struct.pack(f"{order}iiicbbbi", 20 + len(padded) + 8, 20, 0, b"J", 0, 0, 0, 20 + len(padded))
        parts.append(head + padded + struct.pack(f"{order}q", value))
    head = b"\xca\xfe\xc0\xc0" + bytes([order == "<", 2, 0, 1]) + bytes(16)
    return head + struct.pack(f"{order}ii", 32, len(entries)) + b"".join(parts)


SOME = (
    ("sun.gc.generation.0.space.0.used", 10),
    ("sun.gc.generation.1.space.0.used", 20),
    ("sun.gc.generation.1.space.0.capacity", 50),
    ("sun.gc.generation.1.capacity", 99),
    ("sun.gc.metaspace.used", 7),
    ("java.threads.used", 5),
)
KNOWN = {"heap_used": 30, "heap_committed": 50, "metaspace_used": 7}


@pytest.mark.parametrize(
    ("data", "known"),
    [
        (counters("<", *SOME), KNOWN),
        (counters(">", *SOME), KNOWN),
        (counters("<", *SOME)[:100], {}),
        (b"", {}),
        (b"\xff" * 4096, {}),
        (b"\x01" * 4096, {}),
        (bytes(28) + struct.pack("<i", 2**31 - 1)[:4] + bytes(4096), {}),
        (None, {}),
    ],
)
def test_the_memory_of_a_jvm_is_that_of_its_counters(
    data: bytes | None, known: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = counters_of(pwd.getpwuid(os.geteuid()).pw_name, tmp_path, monkeypatch)
    if data is not None:
        (folder / "7").write_bytes(data)
    assert jvm_memory(7) == known


def counters_of(user: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the counters of a user in a folder where all users write."""
    monkeypatch.setattr(process, "COUNTERS", f"{folder}/hsperfdata_{{}}")
    made = folder / f"hsperfdata_{user}"
    made.mkdir()
    return made


def _of_another_user(folder: Path, file: Path) -> None:
    os.chown(folder, 65_534, -1)


def _file_of_another_user(folder: Path, file: Path) -> None:
    os.chown(file, 65_534, -1)


def _a_link(folder: Path, file: Path) -> None:
    file.rename(folder.parent / "elsewhere")
    file.symlink_to(folder.parent / "elsewhere")


def _a_folder_that_is_a_link(folder: Path, file: Path) -> None:
    folder.rename(folder.parent / "elsewhere")
    folder.symlink_to(folder.parent / "elsewhere")


def _a_pipe(folder: Path, file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _too_large(folder: Path, file: Path) -> None:
    os.truncate(file, (1 << 20) + 1)


def _a_folder_of_another_name(folder: Path, file: Path) -> None:
    folder.rename(folder.with_name("hsperfdata_mallory"))


@pytest.mark.parametrize(
    "change",
    [
        *(_of_another_user, _file_of_another_user, _a_link, _a_folder_that_is_a_link, _a_pipe, _too_large),
        _a_folder_of_another_name,
    ],
)
def test_counters_that_others_may_have_chosen_are_not_read(
    change: Callable[[Path, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if change in (_of_another_user, _file_of_another_user) and os.geteuid():
        pytest.skip("only root gives files away")
    folder = counters_of(pwd.getpwuid(os.geteuid()).pw_name, tmp_path, monkeypatch)
    (folder / "7").write_bytes(counters("<", *SOME))
    assert jvm_memory(7) == KNOWN
    change(folder, folder / "7")
    assert jvm_memory(7) == {}
