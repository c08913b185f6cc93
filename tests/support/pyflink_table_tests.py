"""Runs PyFlink's own tests of tables here: ``pyflink`` becomes ``flinkish``; by hand::

    python -m tests.support.pyflink_table_tests FOLDER [MODULE.CLASS.TEST ...]

``FOLDER`` holds ``pyflink/table/tests`` of a checkout of Flink (``flink-python``); nothing of it is kept here but the
names of the tests that pass (``pyflink_table_tests.txt``): one of them that fails is an error. With names, only those
run, and their tracebacks are shown.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import logging
import os
import re
import shutil
import sys
import tempfile
import time
import types
import unittest
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from flinkish.common.no_effect import AbsentName
from flinkish.common.text import ROW_SEPARATOR
from flinkish.common.watermark_strategy import TimestampAssigner
from flinkish.connectors.results import PrintSink
from flinkish.datastream import DataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from flinkish.table import StreamTableEnvironment, TableEnvironment
from tests.support.programs import new_environment

PASSES = Path(__file__).with_suffix(".txt")
_TEST_SINK = re.compile(r"'connector'\s*=\s*'test-sink'")
_PRINTED = re.compile(r"^test-sink(?::\d+)?> ([+-][IUD])(\[.*)$", re.MULTILINE)
#: Modules that compare with classes of Java, or start Pythons of their own.
NOT_HERE = ("_completeness", "_catalog", "_dependency", "test_descriptor", "_udaf", "_udtf", "_async_scalar_function")
_out = io.StringIO()


# --- pyflink is flinkish --------------------------------------------------------------------------------------------


class _Module(types.ModuleType):
    """A module of flinkish under PyFlink's name; a name that it lacks fails in the test that uses it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or f"{self.__name__}.{name}" in SUPPLIED:
            raise AttributeError(name)
        try:
            found = getattr(self.__dict__["module"], name)
        except (KeyError, AttributeError, ImportError):
            found = None
        if found is None or isinstance(found, AbsentName) or name in ("udaf", "udtaf", "udtf"):
            return _missing(f"{self.__name__}.{name}")
        return found


class _Missing:
    """What a call of a missing function gives."""

    def __call__(self, *_: object, **__: object) -> object:
        raise NotImplementedError("a function that is not there")


def _missing(name: str) -> Any:
    if name.rpartition(".")[2].islower():
        return lambda *_, **__: _Missing()

    def make(kind: type, *_: object, **__: object) -> object:
        if kind is missing:
            raise NotImplementedError(f"there is no {name}")
        return object.__new__(kind)

    missing = type(name.rpartition(".")[2], (), {"__new__": make})
    return missing


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(self, fullname: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != "pyflink":
            return None
        if ".tests." in fullname and fullname not in SUPPLIED:
            place = self._folder.joinpath(*fullname.split(".")).with_suffix(".py")
            return importlib.util.spec_from_file_location(fullname, place)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        with contextlib.suppress(ImportError):
            module.__dict__["module"] = importlib.import_module("flinkish" + module.__name__[len("pyflink") :])
        module.__dict__.update(SUPPLIED.get(module.__name__, {}))


# --- what PyFlink's tests stand on ----------------------------------------------------------------------------------


def results() -> list[str]:
    """The rows of the test sink, those that were taken back left out."""
    rows: list[tuple[str, str]] = []
    for kind, row in _PRINTED.findall(_out.getvalue()):
        if kind in ("+I", "+U"):
            rows.append((kind, row))
        else:
            rows.remove(next(each for each in reversed(rows) if each[1] == row))
    _out.seek(0)
    _out.truncate()
    return [kind + row for kind, row in rows]


class PyFlinkTestCase(unittest.TestCase):
    """A test with a folder of its own."""

    tempdir: str

    @classmethod
    def setUpClass(cls) -> None:
        cls.tempdir = tempfile.mkdtemp()

    @classmethod
    def tearDownClass(cls) -> None:
        shutil.rmtree(cls.tempdir, ignore_errors=True)

    @classmethod
    def assert_equals(cls, actual: list[Any], expected: list[Any]) -> None:
        """Both hold the same, in any order."""
        assert sorted(actual) == sorted(expected), f"{sorted(actual)} != {sorted(expected)}"


class PyFlinkStreamTableTestCase(PyFlinkTestCase):
    """A test with an environment for streams."""

    mode = RuntimeExecutionMode.STREAMING
    env: StreamExecutionEnvironment
    t_env: StreamTableEnvironment

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.env, cls.t_env = _environments(cls.mode)


class PyFlinkBatchTableTestCase(PyFlinkStreamTableTestCase):
    """A test with an environment for bounded tables."""

    mode = RuntimeExecutionMode.BATCH


class PyFlinkUTTestCase(PyFlinkTestCase):
    """A test with an environment per test."""

    def setUp(self) -> None:
        self.env, self.t_env = _environments(RuntimeExecutionMode.STREAMING)


def _environments(mode: RuntimeExecutionMode) -> tuple[StreamExecutionEnvironment, StreamTableEnvironment]:
    env = new_environment(2)
    env.set_runtime_mode(mode)
    return env, StreamTableEnvironment.create(env)


def run_with_config(given: dict[str, str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Sets options while a test runs."""

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(test)
        def run(self: Any, *arguments: Any) -> Any:
            config = self.t_env.get_config()
            before = {name: config.get(name, None) for name in given}
            for name, text in given.items():
                config.set(name, text)
            try:
                return test(self, *arguments)
            finally:
                for name, text in before.items():
                    if text is not None:
                        config.set(name, text)

        return run

    return decorate


def _print_for_test_sink(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def execute_sql(self: Any, stmt: str) -> Any:
        return method(self, _TEST_SINK.sub("'connector'='print', 'print-identifier'='test-sink'", stmt))

    return execute_sql


SINKS = {"results": results, "retract_results": results}
CASES = {
    each.__name__: each
    for each in (PyFlinkTestCase, PyFlinkStreamTableTestCase, PyFlinkBatchTableTestCase, PyFlinkUTTestCase)
} | {"run_with_config": run_with_config, "PythonAPICompletenessTestCase": object}
CASES["exec_insert_table"] = lambda table, path: table.execute_insert(path).wait()


class DataStreamTestSinkFunction:
    """The sink of a stream whose records a test reads as Java writes them."""

    def __init__(self) -> None:
        self.name = f"stream-{id(self)}"

    def get_results(self, is_python_object: bool = False, stringify: bool = True) -> list[str]:
        """The records so far."""
        found = re.findall(rf"^{self.name}(?::\d+)?> (.*)$", _out.getvalue(), re.MULTILINE)
        self.clear()
        return found

    def clear(self) -> None:
        """Forget the records so far."""
        _out.seek(0)
        _out.truncate()


def _add_sink(self: DataStream, sink: Any) -> Any:
    return self.sink_to(PrintSink(sink.name, self.get_type(), False, ROW_SEPARATOR))


class SecondColumnTimestampAssigner(TimestampAssigner):
    """Takes the second column."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


SUPPLIED: dict[str, dict[str, Any]] = {
    "pyflink.testing.source_sink_utils": SINKS,
    "pyflink.testing.test_case_utils": CASES,
    "pyflink.pyflink_gateway_server": {"on_windows": lambda: False},
    "pyflink.datastream.tests.test_util": {
        "DataStreamTestSinkFunction": DataStreamTestSinkFunction,
        "SecondColumnTimestampAssigner": SecondColumnTimestampAssigner,
    },
}


# --- the run --------------------------------------------------------------------------------------------------------


class _Result(unittest.TextTestResult):
    """Keeps the names of the tests that passed."""

    def startTest(self, test: unittest.TestCase) -> None:
        self.began = time.monotonic()
        _out.seek(0)
        _out.truncate()
        super().startTest(test)

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        print(f"     {str(err[1])[:600]!r}", file=sys.stderr)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        print(f"     {str(err[1])[:600]!r}", file=sys.stderr)

    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        _passed.add(_name(test))

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        verdict = "pass" if _name(test) in _passed else "----"
        print(f"{verdict} {time.monotonic() - self.began:5.1f} s  {_name(test)}", file=sys.stderr, flush=True)


_passed: set[str] = set()


def _name(test: unittest.TestCase) -> str:
    return test.id().removeprefix("pyflink.table.tests.")


def _suite(folder: Path, names: Sequence[str]) -> unittest.TestSuite:
    loader, suite = unittest.TestLoader(), unittest.TestSuite()
    modules = [path.stem for path in sorted((folder / "pyflink/table/tests").glob("test_*.py"))]
    for name in names or [each for each in modules if not each.endswith(NOT_HERE)]:
        file, _, test = name.partition(".")
        try:
            module = importlib.import_module(f"pyflink.table.tests.{file}")
        except Exception as error:
            print(f"{file} cannot be imported: {error}", file=sys.stderr)
            continue
        suite.addTests(loader.loadTestsFromName(test, module) if test else loader.loadTestsFromModule(module))
    return suite


def main() -> int:
    """Runs the tests; 0: each test of the list passes."""
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    sys.meta_path.insert(0, _Finder(folder))
    logging.disable(logging.WARNING)
    os.environ["FLINKISH_SETTINGS"] = '{"execution.target": "minicluster", "flinkish.progress": "never"}'
    TableEnvironment.execute_sql = _print_for_test_sink(TableEnvironment.execute_sql)  # type: ignore[method-assign]
    DataStream.add_sink = _add_sink  # type: ignore[method-assign,assignment]
    stream = sys.stderr if names else io.StringIO()
    sys.__stdout__ = _out  # type: ignore[misc,assignment]
    with contextlib.redirect_stdout(_out):
        runner = unittest.TextTestRunner(stream, resultclass=_Result, verbosity=0)  # type: ignore[arg-type]
        runner.run(_suite(folder, names))
    listed = set(PASSES.read_text().split()) if PASSES.exists() else set()
    for name in sorted(_passed - listed):
        print(f"passes, too: {name}")
    if names:
        return 0
    for name in sorted(listed - _passed):
        print(f"does not pass: {name}")
    print(f"{len(_passed)} tests pass")
    return int(bool(listed - _passed))


if __name__ == "__main__":
    # the module by its name: what is of __main__ is pickled with the functions of the tests, as copies
    sys.exit(importlib.import_module("tests.support.pyflink_table_tests").main())
