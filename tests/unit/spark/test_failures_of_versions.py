"""A Python or Java that is too old is refused before anything fails in a strange way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flinkish.errors import EnvironmentVersionError, OperationError
from flinkish.spark.session import check_versions, installed_java


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.22", "16", "9-ea"])
def test_a_java_that_is_too_old_is_refused(version: str) -> None:
    with pytest.raises(EnvironmentVersionError) as caught:
        check_versions(java_version=version)
    assert str(caught.value) == (
        f"Java {version} is too old; expected Java 17 or newer; install a newer Java and set JAVA_HOME to it"
    )
    assert isinstance(caught.value, OperationError)


@pytest.mark.parametrize("version", ["17", "17.0.9", "21.0.2", "25-ea", "1.17.0"])
def test_a_java_that_is_new_enough_is_taken(version: str) -> None:
    check_versions(java_version=version)


@pytest.mark.parametrize("version", [(3, 9, 18), (3, 8), (2, 7, 18)])
def test_a_python_that_is_too_old_is_refused(version: tuple[int, ...]) -> None:
    with pytest.raises(EnvironmentVersionError) as caught:
        check_versions(python_version=version)
    found = ".".join(map(str, version))
    assert str(caught.value) == (
        f"Python {found} is too old; expected Python 3.10 or newer; "
        "install a newer Python and create the virtual environment with it"
    )


@pytest.mark.parametrize("version", [(3, 10), (3, 10, 0), (3, 13, 1), (4, 0)])
def test_a_python_that_is_new_enough_is_taken(version: tuple[int, ...]) -> None:
    check_versions(python_version=version)


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


def test_without_a_java_to_ask_nothing_is_said_about_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    assert installed_java() is None
