"""The floors: a package imports only what lies below it, and the core never imports Spark."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

import flinkish
from flinkish.common.options import known_keys
from flinkish.runtime.stored.names import NOW_IN

ROOT = Path(flinkish.__file__).parent

#: Package -> what it may import besides itself and `errors`. From the lowest floor to the highest.
_RUNTIME = {"common", "core", "runtime"}
_API = _RUNTIME | {"formats", "connectors", "graph", "minicluster", "spark", "jobmanager", "launch", "error_display"}
ALLOWED: dict[str, set[str]] = {
    "errors": {"error_display"},
    "error_display": {"exit_codes"},
    "common": set(),
    "formats": {"common"},
    "core": {"common"},
    "metrics": {"common", "core"},
    "connectors": {"common", "core", "formats"},
    "runtime": {"common", "core"},
    "graph": _RUNTIME,
    "minicluster": _RUNTIME | {"graph"},
    "spark": _RUNTIME | {"graph", "launch", "exit_codes"},
    "jobmanager": (_API | {"exit_codes"}) - {"jobmanager"},
    "datastream": _API | {"metrics"},
    # tables as sources and sinks of programs
    "table": _API | {"datastream"},
    # savepoints as DataFrames
    "state": _API | {"datastream"},
    # tests of programs, on all that runs without Spark
    "testing": _RUNTIME | {"connectors", "graph", "minicluster", "jobmanager", "datastream", "table"},
    # beside the engine: programs, and what starts them
    "examples": _API | {"datastream"},
    "exit_codes": set(),
    "launch": {"common", "exit_codes", "error_display"},
    "commands": {"jobmanager"},
    "cli": {"common", "launch", "commands"},
}

#: Packages that know nothing of Spark, whenever their modules are imported and whatever they do later.
PURE = (
    "errors",
    "error_display",
    "exit_codes",
    "common",
    "formats",
    "core",
    "metrics",
    "runtime",
    "graph",
    "minicluster",
    "testing",
)
SPARKS = {"pyspark", "pandas", "delta"}

#: The same of parts of the JobManager: what they import of flinkish is pure too.
PURE_PARTS = (
    "checkpoint/coordinator.py",
    "jobmanager/job/settings.py",
    "jobmanager/lifecycle/",
    "jobmanager/restart/",
    "jobmanager/execution_graph.py",
    "jobmanager/job/description.py",
)

#: Mostly below 300; never above this.
MAX_LINES = 500

MODULES = sorted(ROOT.rglob("*.py"))


def floor_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> frozenset[str]:
    """Full names of all modules that a module imports, also inside of functions."""
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found.add(node.module or "")
            if node.module == "flinkish":
                found |= {f"flinkish.{alias.name}" for alias in node.names}
    return frozenset(found)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def faults(found: Iterable[tuple[Path, Collection[str]]]) -> dict[str, list[str]]:
    """What is wrong in which module."""
    return {name_of(path): sorted(wrong) for path, wrong in found if wrong}


def of_spark(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(path)} & SPARKS


def test_a_module_imports_only_from_the_floors_below() -> None:
    def above(path: Path) -> set[str]:
        floor = floor_of(path)
        below = ALLOWED[floor] | {floor, "errors", "__version__"}
        return {name.split(".")[1] for name in imports(path) if name.startswith("flinkish.")} - below

    assert set(map(floor_of, MODULES)) - {"__init__"} == set(ALLOWED), "each package has a place in the architecture"
    assert faults((path, above(path)) for path in MODULES if floor_of(path) != "__init__") == {}


def test_the_pure_floors_never_import_spark_or_pandas() -> None:
    assert faults((path, of_spark(path)) for path in MODULES if floor_of(path) in PURE) == {}


def test_the_pure_parts_of_the_jobmanager_import_only_what_is_pure() -> None:
    parts = tuple("flinkish." + part.removesuffix(".py").rstrip("/").replace("/", ".") for part in PURE_PARTS)

    def is_pure(name: str) -> bool:
        return not name.startswith("flinkish.") or name.split(".")[1] in PURE or name.startswith(parts)

    found = [path for path in MODULES if name_of(path).startswith(PURE_PARTS)]
    assert len(found) > len(PURE_PARTS)
    assert (
        faults((path, of_spark(path) | {name for name in imports(path) if not is_pure(name)}) for path in found) == {}
    )


@pytest.mark.parametrize(
    "module", ["flinkish.minicluster", "flinkish.graph.job_graph", "flinkish.runtime.task.task_manager"]
)
def test_the_pure_floors_can_be_imported_without_spark(module: str) -> None:
    code = f"import sys, {module}; sys.exit(', '.join(sorted({SPARKS!r} & set(sys.modules))) or 0)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT.parent)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("module", ["flinkish.datastream", "flinkish.testing"])
def test_importing_the_api_does_not_import_spark_or_a_test_framework(module: str) -> None:
    code = f"import sys, {module}; sys.exit(', '.join(sorted({{'pyspark', 'pytest'}} & set(sys.modules))) or 0)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT.parent)
    assert result.returncode == 0, result.stderr


def test_a_module_is_of_a_size_that_can_be_read() -> None:
    lines = {name_of(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}


def test_a_module_begins_with_what_it_is_for() -> None:
    trees = {name_of(path): tree_of(path) for path in MODULES}
    assert [name for name, tree in trees.items() if tree.body and not ast.get_docstring(tree)] == []


def test_every_file_that_the_page_on_the_architecture_names_is_there() -> None:
    """Either by its way from the package or the checkout, or by its name alone."""
    page = (ROOT.parent / "docs" / "architecture.md").read_text()
    named = re.findall(r"`([\w/.-]+(?:\.py|/))`", page)
    assert len(named) > 50
    names = {path.name for folder in (ROOT, ROOT.parent / "tests") for path in folder.rglob("*.py")}
    missing = [
        name
        for name in named
        if not ((ROOT / name).exists() or (ROOT.parent / name).exists() if "/" in name else name in names)
    ]
    assert missing == []


#: Modules that look at URLs of other things than stored files: of databases, jars and class paths; or at Spark's words.
URLS = {
    "common/dependencies.py",
    "storage/paths.py",
    "connectors/jdbc/database.py",
    "datastream/stream_execution_environment.py",
    "errors.py",
    "launch/packages.py",
    "launch/spark_command.py",
    "launch/home.py",
    "spark/dependencies.py",
    "spark/driver_jvm.py",
    "spark/failures.py",
}

#: Texts by which a module would decide for itself which file system a path is on.
_SCHEME = re.compile(
    r"""["'](?::?//|file:|(?:s3[an]?|gs|abfss?|hdfs|dbfs|viewfs):?(?:/*))["']|urlparse|urlsplit|as_uri\("""
)


#: A text that is the path of a module, and not of a package or of one of its classes.
_MODULE = re.compile(r"flinkish(\.[a-z]\w*){2,}")
#: What else such texts are: the keys of settings, and what the Java side calls its log.
_KEYS = frozenset(known_keys()) | {"flinkish.spark.log"}


def test_a_text_that_is_the_path_of_a_module_names_one_that_is_there() -> None:
    texts: dict[Path, set[str]] = {}
    for path in MODULES:
        constants = (node.value for node in ast.walk(tree_of(path)) if isinstance(node, ast.Constant))
        texts[path] = {text for text in constants if isinstance(text, str) and _MODULE.fullmatch(text)} - _KEYS
    # names in stored values are no paths any more, though they once were
    texts[ROOT / "runtime" / "data_names.py"] -= set(NOW_IN)
    assert set().union(*texts.values()) > {"flinkish.launch.daemon", "flinkish.spark.driver_jvm"}
    assert not faults((path, [one for one in found if find_spec(one) is None]) for path, found in texts.items())


def test_no_module_asks_in_which_folder_it_is() -> None:
    asking = {path for path in MODULES if re.search(r"\bPath\(__file__\)|dirname\(__file__\)", path.read_text())}
    assert not asking, "a module may be moved: begin at flinkish.__file__"


def test_only_one_module_looks_at_the_scheme_of_a_path() -> None:
    others = URLS | {"storage/stores.py", "spark/object_stores.py"}
    assert faults((path, _SCHEME.findall(path.read_text())) for path in MODULES if name_of(path) not in others) == {}


#: Modules that give Spark paths of the engine's own files. Connectors give it those of users, as they are.
_SPARKS_PATHS = [path for path in MODULES if floor_of(path) in ("jobmanager", "spark", "state")]


def unnamed_paths(source: str) -> list[str]:
    """The calls in a module that give Spark a path which does not name its file system."""
    unnamed = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            receiver = ast.unparse(node.func.value)
            is_spark = re.search(r"read|write|Stream\b", receiver) is not None
            if node.func.attr in ("load", "save", "parquet") and is_spark:
                unnamed += [ast.unparse(node) for value in node.args if "for_spark" not in ast.unparse(value)]
            if node.func.attr == "option" and ast.unparse(node.args[0]) in ("'checkpointLocation'", "'path'"):
                unnamed += [ast.unparse(node) for value in node.args[1:] if "for_spark" not in ast.unparse(value)]
        if isinstance(node, ast.JoinedStr) and "delta.`" in (text := ast.unparse(node)):
            unnamed += [text] if "delta.`{for_spark(" not in text else []
    return unnamed


def test_each_path_that_spark_gets_names_its_file_system() -> None:
    assert faults((path, unnamed_paths(path.read_text())) for path in _SPARKS_PATHS) == {}


@pytest.mark.parametrize(
    "source",
    [
        "spark.read.format('delta').load(path)",
        "rows.write.save(self.path)",
        "reader.load(path)",
        "writer.options(**more).save(path)",
        "spark.read.schema(schema).parquet(*files)",
        "writer.option('checkpointLocation', path)",
        "spark.sql(f'DELETE FROM delta.`{path}`')",
    ],
)
def test_a_path_that_does_not_is_seen(source: str) -> None:
    assert unnamed_paths(source)
