"""Runs the matrix, or a part of it: one line for each cell; ends with 1 if one of them fails.

    python -m tests.integration.matrix [--source text] [--sink jdbc] [--change driver] [--folder /tmp/matrix]

Each option may be given several times. ``--folder`` keeps everything of the run, logs of the drivers included.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.integration.matrix.cells import assert_golden, epochs_of, make_cell
from tests.integration.matrix.changes import CHANGES
from tests.integration.matrix.program import RECORDS_PER_EPOCH
from tests.integration.matrix.records import RECORDS
from tests.integration.matrix.servers import Servers
from tests.integration.matrix.sessions import Sessions
from tests.integration.matrix.sinks import SINKS
from tests.integration.matrix.sources import SOURCES
from tests.support.class_archive import set_java_options
from tests.support.kafka_broker import KafkaBroker
from tests.support.postgres import PostgresServer


def run_cell(
    folder: Path, source: str, sink: str, change: str, records_per_epoch: int, servers: Servers, sessions: Sessions
) -> int:
    """Runs one cell and checks what it has put out; returns the number of its epochs."""
    cell = make_cell(folder, source, sink, servers, records_per_epoch)
    sessions.keep_only(*CHANGES[change].masters)
    CHANGES[change].run(cell, sessions, servers)
    assert_golden(cell, servers, CHANGES[change].missing)
    epochs = epochs_of(cell)
    assert epochs >= RECORDS // records_per_epoch, f"the job had {epochs} epochs only"
    return epochs


def run_all(
    folder: Path,
    sources: Sequence[str],
    sinks: Sequence[str],
    changes: Sequence[str],
    records_per_epoch: int = RECORDS_PER_EPOCH,
) -> list[str]:
    """Runs the cells, those of a change one after the other; returns the names of those that have failed."""
    failed = []
    with KafkaBroker(gated=True) as kafka, PostgresServer() as postgres, Sessions(folder) as sessions:
        servers = Servers(kafka, postgres)
        for change in changes:
            for source in sources:
                for sink in sinks:
                    if not CHANGES[change].fits(source, sink):
                        continue
                    begin, name = time.monotonic(), f"{source} -> {sink}, {change}"
                    try:
                        epochs = run_cell(folder, source, sink, change, records_per_epoch, servers, sessions)
                        verdict = "exactly once"
                    except Exception as error:  # whatever it is, the other cells are run
                        epochs, verdict = 0, f"FAILED: {type(error).__name__}: {error}"
                        failed.append(name)
                        sessions.keep_only()
                    seconds = time.monotonic() - begin
                    print(f"{name:<32} {epochs:>3} epochs {seconds:>6.1f} s  {verdict}", flush=True)
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """The status with which the command ends."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.matrix", description=__doc__.splitlines()[0])
    parser.add_argument("--source", action="append", choices=list(SOURCES))
    parser.add_argument("--sink", action="append", choices=list(SINKS))
    parser.add_argument("--change", action="append", choices=list(CHANGES))
    parser.add_argument(
        "--records-per-epoch", type=int, default=RECORDS_PER_EPOCH, help="77 and more: all in one epoch"
    )
    parser.add_argument("--folder", type=Path, help="an empty one; a temporary one that is deleted by default")
    told = parser.parse_args(arguments)
    set_java_options()
    with tempfile.TemporaryDirectory(prefix="flinkish-matrix-") as temporary:
        folder = told.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        sources, sinks = told.source or list(SOURCES), told.sink or list(SINKS)
        failed = run_all(folder, sources, sinks, told.change or list(CHANGES), told.records_per_epoch)
    print(f"{len(failed)} failed" + "".join(f"\n  {name}" for name in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
