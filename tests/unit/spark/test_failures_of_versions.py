"""A Python or Java that is too old is refused before anything fails in a strange way."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from flinkish.errors import EnvironmentVersionError, OperationError
from flinkish.spark.session import check_versions, installed_java

JAVA = "Java {} is too old; expected Java 17 or newer; install a newer Java and set JAVA_HOME to it"
PYTHON = (
    "Python {} is too old; expected Python 3.10 or newer; install a newer Python and create the virtual environment "
    "with it"
)


@pytest.mark.parametrize(
    ("what", "versions", "said"),
    [
        ("java_version", ["1.8.0_392", "11.0.22", "16", "9-ea"], JAVA),
        ("python_version", [(3, 9, 18), (3, 8), (2, 7, 18)], PYTHON),
    ],
)
def test_a_java_and_a_python_that_are_too_old_are_refused(what: str, versions: list[Any], said: str) -> None:
    for version in versions:
        with pytest.raises(EnvironmentVersionError) as caught:
            check_versions(**{what: version})
        assert str(caught.value) == said.format(version if isinstance(version, str) else ".".join(map(str, version)))
        assert isinstance(caught.value, OperationError)


def test_those_that_are_new_enough_are_taken() -> None:
    for java in ("17", "17.0.9", "21.0.2", "25-ea", "1.17.0"):
        check_versions(java_version=java)
    for python in ((3, 10), (3, 10, 0), (3, 13, 1), (4, 0)):
        check_versions(python_version=python)


def test_the_java_of_java_home_is_the_one_that_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    # JAVA_TOOL_OPTIONS makes it say one thing more, first
    java.write_text(
        "#!/bin/sh\necho 'Picked up JAVA_TOOL_OPTIONS: -Xmx1g' >&2\necho 'openjdk version \"11.0.2\"' >&2\n"
    )
    os.chmod(java, 0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert installed_java() == "11.0.2"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    assert installed_java() is None
