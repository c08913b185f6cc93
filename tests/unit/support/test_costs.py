"""The longest test files come first, so that no process ends long after the other."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support import costs

TESTS = Path(__file__).resolve().parents[2]


def test_each_file_of_the_list_is_there_and_the_longest_is_first() -> None:
    listed = costs.read_costs()
    assert len(listed) > 20
    assert list(listed.values()) == sorted(listed.values(), reverse=True)
    assert set(listed) <= {path.name for path in TESTS.rglob("test_*.py")}


def test_files_follow_each_other_by_cost_those_with_servers_behind_the_longest_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = {"test_a.py": 10, "test_b.py": 90, "test_c.py": 20, "test_d.py": 30, "test_e.py": 40}
    monkeypatch.setattr(costs, "read_costs", lambda: listed)
    names = [*(f"unit/test_{name}.py" for name in "xadeb"), "integration/test_y.py", "integration/test_c.py"]
    items = [SimpleNamespace(path=Path("tests", name), test=test) for name in names for test in (1, 2)]
    costs.sort_items(items)
    assert [(item.path.name, item.test) for item in items] == [
        (f"test_{name}.py", test) for name in "bedcyax" for test in (1, 2)
    ]


def test_the_cost_of_a_file_is_the_sum_of_its_tests(tmp_path: Path) -> None:
    report = tmp_path / "run.xml"
    cases = [("a.test_long.TestOne", 30), ("a.test_long", 4.4), ("a.test_short", 9), ("a.test_b", 11), ("b.test_b", 12)]
    tests = "".join(f'<testcase classname="tests.{name}" time="{seconds}"/>' for name, seconds in cases)
    report.write_text(f"<testsuites><testsuite>{tests}</testsuite></testsuites>")
    assert list(costs.measured(report).items()) == [("test_long.py", 34), ("test_b.py", 12)]
