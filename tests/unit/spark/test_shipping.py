"""What is shipped to the workers, under which names."""

from __future__ import annotations

import tarfile
from pathlib import Path

from flinkish.common import Configuration
from flinkish.spark.dependencies import ship


class Session:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.archives: dict[str, list[str]] = {}

    def addArtifacts(self, path: str, archive: bool = False) -> None:
        packed, _, name = path.partition("#")
        assert archive and name not in self.archives
        with tarfile.open(packed) as content:
            self.archives[name] = content.getnames()


def test_two_modules_of_the_same_content_are_both_shipped(tmp_path: Path) -> None:
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text("")
    configuration, session = Configuration(), Session()
    configuration.set_string("python.files", f"{tmp_path / 'one.py'},{tmp_path / 'two.py'}")
    folders = ship(session, configuration).modules
    assert [session.archives[folder] for folder in folders] == [["one.py"], ["two.py"]]
    assert ship(session, configuration).modules == folders
