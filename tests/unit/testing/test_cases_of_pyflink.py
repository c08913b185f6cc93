"""Tests that derive from the base classes of PyFlink's own tests run as they are, with the imports renamed."""

from __future__ import annotations

import os
import unittest
from typing import Any

import pytest
from flinkish.datastream.tests.test_util import DataStreamTestSinkFunction  # type: ignore[import-not-found]

from flinkish.common import Row, Types
from flinkish.datastream import RuntimeExecutionMode
from flinkish.testing import test_case_utils  # type: ignore[attr-defined]

PAIR = Types.ROW([Types.STRING(), Types.INT()])

#: Name of the base class -> the runtime mode of its environment.
CASES = {
    "PyFlinkUTTestCase": RuntimeExecutionMode.STREAMING,
    "PyFlinkStreamingTestCase": RuntimeExecutionMode.STREAMING,
    "PyFlinkBatchTestCase": RuntimeExecutionMode.BATCH,
    "PyFlinkStreamTableTestCase": RuntimeExecutionMode.STREAMING,
    "PyFlinkBatchTableTestCase": RuntimeExecutionMode.BATCH,
}


def class_of_a_user(base: Any, mode: RuntimeExecutionMode) -> type[unittest.TestCase]:
    class StreamTests(base):  # type: ignore[misc]
        def setUp(self) -> None:
            super().setUp()
            self.test_sink = DataStreamTestSinkFunction()

        def test_rows(self) -> None:
            numbers = self.env.from_collection([("a", 1), ("b", 2), ("c", None)], PAIR)
            numbers.map(lambda row: Row(row[0] * 2, row[1]), PAIR).add_sink(self.test_sink)
            self.env.execute("rows")
            self.assert_equals_sorted(["+I[aa, 1]", "+I[bb, 2]", "+I[cc, null]"], self.test_sink.get_results(False))
            assert self.test_sink.get_results() == []

        def test_python_objects(self) -> None:
            for stringify, expected in ((True, ["(1, 'x')", "(2, 'x')"]), (False, [(1, "x"), (2, "x")])):
                self.env.from_collection([1, 2]).map(lambda number: (number, "x")).add_sink(self.test_sink)
                self.env.execute("objects")
                self.assert_equals(self.test_sink.get_results(True, stringify), expected)

        def test_keys(self) -> None:
            pairs = self.env.from_collection([("a", 1), ("b", 2), ("a", 3)], Types.TUPLE([Types.STRING(), Types.INT()]))
            pairs.key_by(lambda pair: pair[0]).sum(1).sink_to(self.test_sink)
            self.env.execute()
            running = ["(a,1)"] * (mode is RuntimeExecutionMode.STREAMING)
            self.assert_equals_sorted([*running, "(a,4)", "(b,2)"], self.test_sink.get_results())

        def test_what_is_there(self) -> None:
            assert os.path.isdir(self.tempdir)
            assert self.env.get_parallelism() == 2
            assert self.t_env.get_config().get("execution.runtime-mode", "") == mode.name

    return StreamTests


@pytest.mark.parametrize(("base", "mode"), CASES.items())
def test_a_test_of_a_user_runs_on_the_base_class(base: str, mode: RuntimeExecutionMode) -> None:
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(class_of_a_user(getattr(test_case_utils, base), mode))
    result = unittest.TestResult()
    suite.run(result)
    assert (result.testsRun, result.errors, result.failures) == (4, [], [])


def test_a_failed_comparison_shows_both_sides() -> None:
    with pytest.raises(AssertionError, match=r"\[1, 2\] instead of \[2, 3\]"):
        test_case_utils.PyFlinkTestCase.assert_equals([2, 1], [3, 2])
