"""A job in a directory of which a file is damaged, missing, or of a newer release goes on with the right results, or
is refused in one sentence that names the file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from flinkish.errors import FlinkishError, InternalError
from flinkish.jobdir.layout import TotalsDescription
from flinkish.storage.sealed import sealed
from tests.golden.job import build, check_results
from tests.golden.write import unpack
from tests.integration.damage.harm import HARMS
from tests.integration.engine.collecting import collecting


def newer(path: Path) -> None:
    """Of a newer release."""
    content = json.loads(path.read_text())
    content.pop("digest")
    path.write_bytes(sealed({**content, "version": content["version"] + 1}))


def directory(path: Path) -> None:
    """A directory is in its place."""
    path.unlink()
    path.mkdir()


#: The file -> whether the job goes on without it.
FILES = {
    "job.json": False,
    "owner.json": True,
    "attempts.json": True,
    "states.json": True,
    "ended.json": True,
    "query-location.json": True,
    "minicluster/7.json": False,
    "minicluster/committed.json": False,
}
ALL_HARMS: dict[str, Callable[[Path], None]] = {**HARMS, "newer": newer, "directory": directory}


@pytest.mark.parametrize("harm", ALL_HARMS)
@pytest.mark.parametrize("name", FILES)
def test_a_job_goes_on_with_the_right_results_or_is_refused_by_the_name_of_the_file(
    name: str, harm: str, tmp_path: Path
) -> None:
    info, job = unpack("minicluster", tmp_path), tmp_path / "job"
    TotalsDescription(records_in=info["records"]).write(str(job))
    ALL_HARMS[harm](job / name)
    with collecting() as collected:
        env = build(collected, job, execution__target="minicluster", flinkish__job__restart=True)
        if harm == "deleted" and FILES[name]:
            env.execute("golden")
            check_results(collected, info["records"])
            return
        with pytest.raises(FlinkishError) as caught:
            env.execute("golden")
    said = str(caught.value)
    assert not isinstance(caught.value, InternalError) and caught.value.hint
    assert re.search(f"the file {name} (is (damaged|missing)|was written by a newer release)", said), said
    assert not caught.value.retryable or "minicluster/" in name
