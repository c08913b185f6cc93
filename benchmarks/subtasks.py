"""What an epoch of a job with many subtasks costs on two cores: processor time of all processes, start-up left out.

    python -m benchmarks.subtasks [--subtasks N ...] [--epochs N] [--set KEY=VALUE ...] [--before CHECKOUT] [--runs N]

Each number of subtasks runs as it is, and, in turns, with other settings or with the flinkish of another checkout. The
results must be equal. The first epoch with data is not counted. Only Linux (through /proc).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks import contract

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "benchmarks" / "pipelines" / "subtasks_program.py"
TIMEOUT_S = 900


def measure(subtasks: int, epochs: int, checkout: Path, settings: list[str]) -> list[tuple[float, float]]:
    """(processor seconds, seconds) of each epoch; raises RuntimeError if the sum is wrong."""
    command = [sys.executable, str(PROGRAM), str(subtasks), str(epochs)]
    if settings:
        command += ["--set", *settings]
    where = contract.in_checkout(checkout)
    ended = subprocess.run(command, **where, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if ended.returncode:
        raise RuntimeError(f"{subtasks} subtasks: the job ended with {ended.returncode}\n{ended.stderr[-3000:]}")
    found = json.loads(ended.stdout.strip().splitlines()[-1])
    if found["sum"] != subtasks * epochs * 1_000:
        raise RuntimeError(f"{subtasks} subtasks: the sums are {found['sum']}")
    return [(cpu_s, wall_s) for cpu_s, wall_s in found["epochs"]]


def main() -> None:
    """Run all and print a row for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.subtasks", description=__doc__)
    parser.add_argument("--subtasks", nargs="*", type=int, default=[2, 4, 16, 32, 64, 128])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="other settings to compare with")
    parser.add_argument("--before", type=Path, help="a checkout of an earlier version to compare with")
    options = parser.parse_args()
    versions: list[tuple[str, Path, list[str]]] = [("as it is", ROOT, [])]
    if options.set:
        versions.append((" ".join(options.set), ROOT, options.set))
    if options.before:
        versions.append(("before", options.before, []))
    print("| subtasks | version | processor s an epoch | s an epoch | epochs |\n| --- | --- | --- | --- | --- |")
    for subtasks in options.subtasks:
        spent: dict[str, list[tuple[float, float]]] = {}
        for _ in range(options.runs):
            for name, checkout, settings in versions:
                spent.setdefault(name, []).extend(measure(subtasks, options.epochs, checkout, settings))
        for name, epochs in spent.items():
            cpu_s, wall_s = (statistics.median(values) for values in zip(*epochs, strict=True))
            print(f"| {subtasks} | {name} | {cpu_s:.2f} | {wall_s:.2f} | {len(epochs)} |", flush=True)


if __name__ == "__main__":
    main()
