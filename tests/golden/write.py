"""Writes the golden files, each into a place of its own below this folder:

    python -m tests.golden.write [values] [job_files] [positions] [splits] [minicluster] [spark]

Files that are there stay: they are what a release has stored, and a later one must read them. Whoever changes a stored
format raises its version, and adds files of the new one (docs/formats.md).
"""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flinkish.checkpoint import writer as incremental
from flinkish.checkpoint.manifest import Savepoint
from flinkish.common.typeinfo import Types
from flinkish.core.source import SourcePosition
from flinkish.runtime.job.report import STATE_FORMAT_VERSION
from flinkish.runtime.stored.pickles import dumps_all, dumps_data
from flinkish.state import write_savepoint
from tests.golden.job import PER_EPOCH, build
from tests.golden.positions import make_inputs, stored_positions, write_checkpoint_with_files
from tests.golden.values import PROGRAM, of_data, of_program
from tests.integration.engine.collecting import Collected, collecting
from tests.support.processes import wait_until
from tests.support.stored_samples import SAMPLES, path_of

FOLDER = Path(__file__).parent
TIMEOUT_S = 120
_COLUMNS = "uid STRING, state STRING, key STRING, value LONG"
VALUES = FOLDER / "values.json"


def stored_values() -> dict[str, Any]:
    """Name -> the forms of its value: on its own, and as one of a column; and the version of Python."""
    found = {
        name: {"alone": dumps_data(value, PROGRAM).hex(), "in a column": dumps_all([value], PROGRAM)[0].hex()}
        for name, value in sorted({**of_data(), **of_program()}.items())
    }
    return {"python": list(sys.version_info[:2]), "values": found}


def _values() -> None:
    _write(VALUES, stored_values())


def _job_files() -> None:
    _write(FOLDER / "job_files.json", {path_of(*one): one[0].encoded().decode() for one in SAMPLES})


def _positions() -> None:
    with tempfile.TemporaryDirectory() as folder:
        make_inputs(Path(folder))
        _pack(Path(folder), "positions", stored_positions(Path(folder)))


def _splits() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint_with_files(Path(folder))
        _pack(Path(folder), "splits", {})


def _minicluster() -> None:
    with tempfile.TemporaryDirectory() as folder, collecting() as collected:
        records = _run(collected, Path(folder), execution__target="minicluster")
        _pack(Path(folder), f"minicluster-{STATE_FORMAT_VERSION}", {"records": records})


def _spark() -> None:
    from tests.support.spark_session import start_session

    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryDirectory() as folder, collecting() as collected:
        spark = start_session(Path(scratch))
        # otherwise so small a state is written whole each time
        incremental.SMALL_STATE_ROWS = 0
        records = _run(collected, Path(folder), execution__checkpointing__incremental=True)
        rows = spark.createDataFrame([("everything", "sum", "u0", 7)], _COLUMNS)
        write_savepoint(rows, f"{folder}/written", states={("everything", "sum"): Types.LONG()})
        _pack(Path(folder), "spark", {"records": records, "spark": spark.version})
        spark.stop()


def _run(collected: Collected, folder: Path, **more: Any) -> int:
    """Run the job for some epochs, with checkpoints and a savepoint; returns the number of records it has read then."""
    env = build(
        collected,
        folder / "job",
        PER_EPOCH,
        execution__checkpointing__interval="50 ms",
        execution__checkpointing__num_retained=3,
        execution__checkpointing__externalized_checkpoint_retention="RETAIN_ON_CANCELLATION",
        flinkish__epoch__interval="6 s",
        **more,
    )
    client = env.execute_async("golden")
    wait_until(lambda: len(collected.rows["numbers"]) >= 3 * PER_EPOCH, TIMEOUT_S, "three epochs")
    wait_until(lambda: _completed(client) >= 2, TIMEOUT_S, "two checkpoints, the second of which has changes alone")
    client.trigger_savepoint(str(folder / "savepoints")).result(TIMEOUT_S)
    client.cancel().result(TIMEOUT_S)
    (savepoint,) = (folder / "savepoints").iterdir()
    savepoint.rename(folder / "savepoint")
    (folder / "savepoints").rmdir()
    return len(collected.rows["numbers"])


def _completed(client: Any) -> int:
    return sum(checkpoint.status == "COMPLETED" for checkpoint in client.run.checkpoints.describe())


def _pack(folder: Path, name: str, info: dict[str, Any]) -> None:
    """Keep a folder as an archive, with what is known of the job."""
    (folder / "golden.json").write_text(json.dumps(info))
    path = FOLDER / f"{name}.tar.gz"
    if path.exists():
        print(path.name, "is there and stays")
        return
    with tarfile.open(path, "w:gz") as archive:
        for entry in sorted(folder.iterdir()):
            archive.add(entry, entry.name)
    print(path.name, path.stat().st_size, "bytes")


def unpack(name: str, folder: Path) -> dict[str, Any]:
    """Copy what was kept into a folder; returns what is known of the job."""
    with tarfile.open(FOLDER / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    found: dict[str, Any] = json.loads((folder / "golden.json").read_text())
    return found


def records_before(savepoint: Path) -> int:
    """The number of records that a savepoint or checkpoint is behind; each split has given as many as the other."""
    position = SourcePosition.decode(Savepoint.open(str(savepoint)).manifest.sources["events"], "")
    first, second = (split[1] for split in position.splits)
    assert first == second > 0 and not position.ended
    return first + second


def _write(path: Path, content: Any) -> None:
    data = (json.dumps(content, indent=1) + "\n").encode()
    if not path.exists():
        path.write_bytes(data)
    print(path.name, "now", hashlib.sha256(data).hexdigest(), "stored", hashlib.sha256(path.read_bytes()).hexdigest())


WRITERS: dict[str, Callable[[], None]] = {
    "values": _values,
    "job_files": _job_files,
    "positions": _positions,
    "splits": _splits,
    "minicluster": _minicluster,
    "spark": _spark,
}


if __name__ == "__main__":
    for name in sys.argv[1:] or WRITERS:
        WRITERS[name]()
