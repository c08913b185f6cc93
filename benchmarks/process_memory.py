"""How much memory the processes of a job take. Only Linux (through /proc)."""

from __future__ import annotations

from pathlib import Path

from benchmarks import contract

_PLANNER = "python_streaming_source_runner"


def sizes_mib(root: int) -> dict[str, float]:
    """The proportional set size of each process below one, by what it is and its id, and of all workers together."""
    found: dict[str, float] = {}
    for pid in contract.process_tree(root)[1:]:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        if "java" in command.split(" ", 1)[0]:
            kind = "jvm"
        elif "pyspark" in command:
            kind = "planner" if _PLANNER in command else "worker"
        else:
            continue
        size = sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
        found[f"{kind} {pid}"] = size
        if kind == "worker":
            found["all workers"] = found.get("all workers", 0.0) + size
    return found
