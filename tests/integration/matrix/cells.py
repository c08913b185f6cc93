"""The cells of the matrix: one source, one sink, and what changes."""

from __future__ import annotations

import itertools
from collections.abc import Container
from pathlib import Path

from tests.integration.matrix.program import RECORDS_PER_EPOCH, Cell
from tests.integration.matrix.records import golden, in_promised_order
from tests.integration.matrix.servers import Servers
from tests.integration.matrix.sinks import SINKS
from tests.integration.matrix.sources import SOURCES
from tests.support.exactness import assert_exact

_numbers = itertools.count()


def make_cell(
    folder: Path, source: str, sink: str, servers: Servers, records_per_epoch: int = RECORDS_PER_EPOCH
) -> Cell:
    """A cell with its input, an empty sink and a folder of its own."""
    own = folder / f"{next(_numbers)}-{source}-{sink}"
    own.mkdir()
    input_place = SOURCES[source].make_input(own / "input", servers.kafka)
    output_place = SINKS[sink].make(own / "output", servers)
    gate = servers.kafka.gate
    address = gate.bootstrap_servers if gate else servers.kafka.bootstrap_servers
    return Cell(str(own), source, sink, input_place, output_place, address, records_per_epoch)


def assert_golden(cell: Cell, servers: Servers, missing: Container[str] = ()) -> None:
    """The sink holds the golden result, each output once, in the order that is promised. ``missing``: the ids of those
    that it does not hold."""
    found = SINKS[cell.sink].read(cell.output_place, servers)
    assert_exact([output for output in golden() if output.id not in missing], in_promised_order(found))


def epochs_of(cell: Cell) -> int:
    """How many epochs the job has committed, by the log of its query."""
    return len(list((Path(cell.folder) / "job").glob("spark*/commits/[0-9]*")))
