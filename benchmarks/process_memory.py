"""The memory of the processes of a job. Only Linux (through /proc)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks import contract

_PLANNER = "python_streaming_source_runner"


def kind_of(command: str) -> str | None:
    """The kind of a job's process, by its command line: jvm, worker, planner (plans epochs); None for any other."""
    if "java" in command.split(" ", 1)[0]:
        return "jvm"
    if "pyspark" not in command:
        return None
    return "planner" if _PLANNER in command else "worker"


def kib_of_processes(root: int, file: str, field: str) -> Iterator[tuple[str, int, int]]:
    """(kind, process id, KiB) of a job's processes below ``root``, from a field of a file in their folders of /proc."""
    for pid in contract.process_tree(root)[1:]:
        try:
            kind = kind_of(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())
            lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
        except OSError:
            continue
        if kind is not None:
            yield kind, pid, sum(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def sizes_mib(root: int) -> dict[str, float]:
    """The proportional set size of each process below ``root``, by kind and id, and of all workers together."""
    found: dict[str, float] = {}
    for kind, pid, kib in kib_of_processes(root, "smaps_rollup", "Pss"):
        found[f"{kind} {pid}"] = kib / 1024
        if kind == "worker":
            found["all workers"] = found.get("all workers", 0.0) + kib / 1024
    return found
