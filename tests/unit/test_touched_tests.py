"""The hook before a commit runs the unit tests of what was touched, and no others."""

from __future__ import annotations

import importlib.util
import shlex
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import flinkish

CHECKOUT = Path(flinkish.__file__).parents[1]
SCRIPT = CHECKOUT / ".ci" / "touched_tests.py"

#: Rooms whose tests are those of the whole package.
WITHOUT_TESTS = {"metrics"}

THERE = {
    "tests/unit/formats",
    "tests/unit/runtime",
    "tests/unit/runtime/state",
    "tests/unit/runtime/state/files",
    "tests/unit/runtime/state/files/support.py",
    "tests/unit/runtime/state/test_ttl.py",
    "tests/unit/spark",
    "tests/unit/engine",
    "tests/unit/test_error_display.py",
}
ARCHITECTURE = "tests/unit/test_architecture.py"
PAGES = "tests/unit/test_pages.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("touched_tests", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("files", "tests"),
    [
        (["flinkish/formats/csv.py"], ["tests/unit/formats", ARCHITECTURE]),
        (["flinkish/runtime/exchange/buffer.py"], ["tests/unit/runtime", ARCHITECTURE]),
        # the deepest room that has tests
        (["flinkish/runtime/state/ttl.py"], ["tests/unit/runtime/state", ARCHITECTURE]),
        (["flinkish/runtime/state/files/merge.py"], ["tests/unit/runtime/state/files", ARCHITECTURE]),
        (["flinkish/runtime/nowhere/x.py"], ["tests/unit/runtime", ARCHITECTURE]),
        # a room that is tested in another folder as well
        (["flinkish/spark/plan.py"], ["tests/unit/engine", "tests/unit/spark", ARCHITECTURE]),
        # modules without a room, and rooms without tests
        (["flinkish/error_display.py"], [ARCHITECTURE, "tests/unit/test_error_display.py"]),
        (["flinkish/errors.py"], [ARCHITECTURE]),
        (["flinkish/nowhere/x.py"], [ARCHITECTURE]),
        # a folder is run once
        (
            ["flinkish/runtime/state/ttl.py", "flinkish/runtime/state/files/merge.py"],
            ["tests/unit/runtime/state", ARCHITECTURE],
        ),
        (
            ["flinkish/runtime/state/ttl.py", "tests/unit/runtime/state/test_ttl.py"],
            ["tests/unit/runtime/state", ARCHITECTURE],
        ),
        # tests, and what they share
        (["tests/unit/runtime/state/test_ttl.py"], ["tests/unit/runtime/state/test_ttl.py"]),
        (["tests/unit/runtime/state/files/support.py"], ["tests/unit/runtime/state/files"]),
        (["tests/unit/runtime/state/test_that_is_gone.py"], []),
        (["tests/unit/__init__.py"], []),
        (["docs/semantics.md", "README.md", "setup.cfg", "docs/site/mkdocs.yml"], [PAGES]),
        # left to the whole run
        (["tests/integration/engine/test_faults.py", "tests/support/faults.py", "benchmarks/scale.py"], []),
        (["flinkish/py.typed", "flinkish/launch/log4j2.properties", "run-tests.sh"], []),
        ([], []),
    ],
)
def test_what_was_touched_leads_to_its_tests(script: ModuleType, files: list[str], tests: list[str]) -> None:
    assert script.touched_tests(files, THERE) == tests


def test_each_room_of_the_package_has_tests(script: ModuleType) -> None:
    there = script.all_tests()
    rooms = {path.parent.name for path in (CHECKOUT / "flinkish").glob("*/__init__.py")}
    assert {"runtime", "jobmanager", "core"} <= rooms
    assert {room for room in rooms if not script.tests_of(f"flinkish/{room}/x.py", there) - {ARCHITECTURE}} == (
        WITHOUT_TESTS & rooms
    )


def test_nothing_is_run_where_there_are_no_tests(script: ModuleType) -> None:
    assert script.main(["LICENSE"]) == 0


def test_the_hooks_run_what_the_checkout_has() -> None:
    (local,) = yaml.safe_load((CHECKOUT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local", "hooks of others would be downloaded"
    entries = {hook["id"]: shlex.split(hook["entry"]) for hook in local["hooks"]}
    assert {hook["language"] for hook in local["hooks"]} == {"system"}
    assert {entry[0] for entry in entries.values()} == {".venv/bin/python"}
    assert entries["ruff-check"][1:] == ["-m", "ruff", "check"]
    assert entries["ruff-format"][1:] == ["-m", "ruff", "format", "--check"]
    assert [CHECKOUT / name for name in entries["unit-tests"][1:]] == [SCRIPT]
