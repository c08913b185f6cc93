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

from flinkish.common.options import known_keys
from flinkish.runtime.stored.names import NOW_IN
from flinkish.runtime.stored.opcodes import FORMER
from tests.support.sources import MODULES, name_of, nodes_of, trees
from tests.support.sources import PACKAGE as ROOT

_EVERYWHERE = {"errors", "interpreter"}
#: Room -> the rooms that it may import besides itself and `_EVERYWHERE`, from the lowest floor to the highest. A room
#: is a folder without its folders, or a module beside the packages.
_VALUES = {"common", "common/typeinfo", "core"}
_EXCHANGE = _VALUES | {"core/window", "runtime", "runtime/stored", "storage"}
_STATE = _EXCHANGE | {"runtime/exchange", "runtime/state/files"}
_OPERATORS = _STATE | {"runtime/state", "runtime/job"}
_EPOCH = _OPERATORS | {"runtime/operators", "runtime/operators/window", "runtime/sources"}
_TASK = _EPOCH | {"runtime/epoch", "runtime/state/saved"}
_RUNTIME = _TASK | {"runtime/task"}
_CONNECTORS = {"connectors", "connectors/file_system", "connectors/jdbc", "connectors/kafka", "connectors/kinesis"}
_DRIVER = _RUNTIME | _CONNECTORS | {"common/options", "delta", "graph", "launch", "spark"}
_JOBS = _DRIVER | {"jobdir", "jobmanager/job", "checkpoint", "jobmanager", "minicluster"}
_API = _JOBS | {"formats", "error_display", "datastream", "datastream/connectors", "datastream/streams"}
ALLOWED: dict[str, set[str]] = {
    "errors": {"error_display"},
    "error_display": set(),
    "interpreter": set(),
    "common": {"common/options", "common/typeinfo"},
    "common/options": {"common"},
    "common/typeinfo": {"common"},
    "storage": set(),
    "delta": {"storage"},
    "core": {"common", "common/typeinfo", "core/window", "storage"},
    "core/window": _VALUES,
    "metrics": {"common", "core"},
    "formats": {"common", "common/typeinfo"},
    "connectors": _VALUES | {"delta", "storage"},
    "connectors/file_system": _VALUES | {"connectors", "formats", "storage"},
    "connectors/jdbc": _VALUES | {"connectors"},
    "connectors/kafka": _VALUES | {"connectors", "formats", "storage"},
    "connectors/kinesis": _VALUES | {"connectors", "storage"},
    "launch": {"common", "error_display", "storage"},
    # what happens inside a task
    "runtime": {"common", "common/typeinfo"},
    "runtime/stored": _VALUES | {"core/window", "runtime"},
    "runtime/exchange": _EXCHANGE,
    "runtime/state/files": {"runtime/exchange", "storage"},
    "runtime/state": _STATE,
    "runtime/job": _STATE | {"runtime/state"},
    "runtime/state/saved": _OPERATORS,
    "runtime/operators": _OPERATORS | {"runtime/operators/window"},
    "runtime/operators/window": _OPERATORS,
    "runtime/columns": _OPERATORS | {"runtime/operators", "runtime/operators/window"},
    "runtime/sources": _OPERATORS | {"runtime/operators"},
    "runtime/epoch": _EPOCH,
    "runtime/task": _TASK,
    # what a program means, and how it runs
    "graph": _RUNTIME,
    "minicluster": _RUNTIME,
    "spark": _RUNTIME | {"common/options", "delta", "launch"},
    # the driver
    "jobdir": _DRIVER | {"minicluster"},
    "jobmanager/job": _DRIVER | {"jobdir"},
    "checkpoint": _DRIVER | {"jobdir", "jobmanager/job", "minicluster"},
    "rest/views": {"common", "common/options", "jobmanager/job", "rest"},
    "rest": {
        *("common", "common/options", "jobmanager/job", "rest/views"),
        *("runtime/epoch", "runtime/task", "runtime", "storage"),
    },
    "session": {
        *("common", "common/options", "error_display", "jobdir", "jobmanager/job", "launch"),
        *("rest", "rest/views", "runtime", "storage"),
    },
    "jobmanager": _JOBS | {"error_display", "jobmanager/replay", "rest", "rest/views"},
    "jobmanager/replay": _JOBS,
    # what users write
    "datastream/connectors": _CONNECTORS | _VALUES,
    "datastream": _API | {"metrics"},
    "datastream/streams": _API,
    "datastream/formats": {"common", "common/typeinfo", "connectors/file_system", "formats"},
    "table": _API | {"runtime/columns"},
    "state": _API,
    "testing": (_API | {"table"}) - {"spark", "launch", "delta"},
    "examples": _API,
    "doctor": _DRIVER | {"error_display", "jobdir", "rest"},
    "cli": {"common", "doctor", "graph", "jobdir", "jobmanager", "launch", "rest", "session", "state", "storage"},
}

#: Folders that import each other: the layout is PyFlink's, or one is a kind of the other.
ONE = (
    {"errors", "error_display"},
    {"common", "common/options", "common/typeinfo"},
    {"core", "core/window"},
    {"runtime/operators", "runtime/operators/window"},
    {"jobmanager", "jobmanager/replay"},
    {"rest", "rest/views"},
    {"datastream", "datastream/streams"},
)

#: Room -> its modules and lines. They grow by a decision: a commit that needs more raises its row.
SIZES: dict[str, tuple[int, int]] = {
    "__init__": (1, 26),
    "errors": (1, 509),
    "error_display": (1, 277),
    "interpreter": (1, 23),
    "common": (30, 5_114),
    "common/options": (14, 1_775),
    "common/typeinfo": (9, 2_105),
    "storage": (6, 1_492),
    "delta": (6, 1_156),
    "core": (13, 2_987),
    "core/window": (8, 1_599),
    "metrics": (2, 17),
    "formats": (12, 3_904),
    "connectors": (9, 2_893),
    "connectors/file_system": (10, 2_843),
    "connectors/jdbc": (11, 2_711),
    "connectors/kafka": (11, 3_579),
    "connectors/kinesis": (5, 1_425),
    "launch": (11, 1_925),
    "runtime": (4, 769),
    "runtime/stored": (11, 3_443),
    "runtime/exchange": (10, 3_209),
    "runtime/state/files": (8, 2_412),
    "runtime/state": (19, 5_299),
    "runtime/job": (9, 2_286),
    "runtime/state/saved": (6, 1_405),
    "runtime/operators": (15, 4_090),
    "runtime/operators/window": (7, 1_813),
    "runtime/sources": (8, 2_049),
    "runtime/epoch": (6, 1_411),
    "runtime/task": (10, 3_612),
    "graph": (6, 1_365),
    "minicluster": (3, 618),
    "spark": (22, 6_074),
    "jobdir": (12, 2_762),
    "jobmanager/job": (7, 1_661),
    "checkpoint": (12, 3_775),
    "rest": (16, 2_358),
    "rest/views": (12, 2_416),
    "session": (11, 2_325),
    "jobmanager": (42, 10_900),
    "jobmanager/replay": (3, 536),
    "datastream/connectors": (11, 286),
    "datastream": (23, 2_601),
    "datastream/streams": (10, 2_574),
    "datastream/formats": (6, 182),
    "table": (35, 10_454),
    "state": (6, 1_222),
    "testing": (5, 1_674),
    "examples": (7, 734),
    "doctor": (5, 846),
    "cli": (17, 2_851),
    "runtime/columns": (16, 3_634),
}

#: Modules that one module of another room alone imports, and why they do not stand there. The list only shrinks.
_PYFLINK = "PyFlink's path to it holds names alone"
_OWN_WORK = "a piece of work of its own, with tests of its own"
_IN_WORKERS = "runs in workers; the module that plans it runs in the driver"
_COLUMNS = "reads or writes columns, which programs of rows never load"
APART = {
    "checkpoint/fallback.py": "decides on checkpoints; the run that asks knows nothing of them",
    "checkpoint/writer.py": "writes checkpoints; the thread that tells it when knows the run",
    "connectors/file_system/columns.py": _COLUMNS,
    "connectors/file_system/sink.py": _PYFLINK,
    "connectors/hybrid_source.py": _PYFLINK,
    "connectors/jdbc/sink.py": _PYFLINK,
    "connectors/jdbc/source.py": _PYFLINK,
    "connectors/kafka/columns.py": _COLUMNS,
    "connectors/kafka/flink_kafka.py": _PYFLINK,
    "connectors/kinesis/sink.py": _PYFLINK,
    "connectors/kinesis/source.py": _PYFLINK,
    "datastream/connectors/delta.py": "what programs import",
    "delta/fence.py": "knows Delta's commits and nothing of jobs",
    "formats/csv_schema.py": _PYFLINK,
    "jobmanager/replay/replay.py": _OWN_WORK,
    "jobmanager/submission.py": "imports Spark, and the API must not",
    "rest/archive.py": "writes what Flink's history server reads; the job that ends knows nothing of views",
    "rest/views/archive.py": "a view like the others, which is written instead of answered",
    **dict.fromkeys((f"runtime/columns/{name}.py" for name in ("calc", "rows", "watermarks")), _IN_WORKERS),
    "runtime/operators/guarded_factory.py": _OWN_WORK,
    "session/process.py": "a process of its own; the command only reads its arguments",
    "runtime/state/files/timer_files.py": "knows files and nothing of timers in memory",
    "formats/json_columns.py": _COLUMNS,
    "runtime/columns/normalize.py": _COLUMNS,
}

#: Packages that know nothing of Spark, whenever their modules are imported and whatever they do later.
PURE = (
    "errors",
    "error_display",
    "interpreter",
    "common",
    "storage",
    "formats",
    "core",
    "metrics",
    "runtime",
    "graph",
    "minicluster",
    "testing",
)
SPARKS = {"pyspark", "pandas", "delta"}

#: The same of parts of the driver: what they import of flinkish is pure too.
PURE_PARTS = (
    "checkpoint/coordinator.py",
    "jobdir/layout.py",
    "jobmanager/job/",
    "jobmanager/back_pressure.py",
    "jobmanager/restart.py",
    "jobmanager/execution_graph.py",
    "jobmanager/operator_ids.py",
    "jobmanager/rates.py",
)

#: Mostly below 300; never above this.
MAX_LINES = 560


def floor_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def room_of(path: Path) -> str:
    """The folder of a module; a module beside the packages is a room of its own."""
    return str(path.parent.relative_to(ROOT)) if path.parent != ROOT else path.stem


def rooms_below(path: Path) -> set[str]:
    """The rooms that a module imports from, without its own."""
    found = set()
    for name in imports(path):
        if name.startswith("flinkish."):
            there = ROOT.joinpath(*name.split(".")[1:])
            found.add(room_of(package if (package := there / "__init__.py").exists() else there.with_suffix(".py")))
    return found - {room_of(path), "__version__"}


@cache
def imports(path: Path) -> frozenset[str]:
    """Full names of all modules that a module imports, also inside of functions."""
    found: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found.add(node.module or "")
            if node.module == "flinkish":
                found |= {f"flinkish.{alias.name}" for alias in node.names}
    return frozenset(found)


@cache
def imported_modules(path: Path) -> frozenset[str]:
    """The modules of flinkish that a module imports, or imports from, below its root."""
    found = set()
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "flinkish":
            there = ROOT.joinpath(*str(node.module).split(".")[1:])
            for alias in node.names:
                module = next(
                    (at for at in ((there / alias.name).with_suffix(".py"), there.with_suffix(".py")) if at.exists()),
                    there / "__init__.py",
                )
                found.add(name_of(module))
    return frozenset(found)


def faults(found: Iterable[tuple[Path, Collection[str]]]) -> dict[str, list[str]]:
    """What is wrong in which module."""
    return {name_of(path): sorted(wrong) for path, wrong in found if wrong}


def of_spark(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(path)} & SPARKS


def test_a_module_imports_only_from_the_rooms_that_its_own_may_know() -> None:
    assert set(map(room_of, MODULES)) - {"__init__"} == set(ALLOWED), "each room has a place in the architecture"
    below = [path for path in MODULES if path.parent != ROOT]
    wrong = ((path, rooms_below(path) - ALLOWED[room_of(path)] - _EVERYWHERE) for path in below)
    assert faults(wrong) == {}


def test_rooms_lie_on_floors_and_no_arrow_goes_up() -> None:
    floor = {room: number for number, room in enumerate(ALLOWED)}
    upwards = {
        (room, other)
        for room, others in ALLOWED.items()
        for other in others
        if floor[other] > floor[room] and not any({room, other} <= one for one in ONE)
    }
    assert upwards == set()


def test_a_room_grows_by_a_decision() -> None:
    sizes: dict[str, tuple[int, int]] = {}
    for path in MODULES:
        modules, lines = sizes.get(room_of(path), (0, 0))
        sizes[room_of(path)] = modules + 1, lines + len(path.read_text().splitlines())
    grown = {room: size for room, size in sizes.items() if size[0] > SIZES[room][0] or size[1] > SIZES[room][1]}
    assert grown == {}, "raise the figures of the room in SIZES, or write less"
    assert set(sizes) == set(SIZES)


def test_a_module_that_another_room_alone_imports_says_why_it_stands_apart() -> None:
    importers: dict[str, set[str]] = {}
    for path in MODULES:
        for name in imported_modules(path):
            importers.setdefault(name, set()).add(name_of(path))
    apart = {
        name
        for name, those in importers.items()
        if len(those) == 1 and room_of(ROOT / name) != room_of(ROOT / next(iter(those))) and "__init__" not in name
    }
    assert apart - set(APART) == set()
    assert set(APART) - apart == set(), "the list shrinks"


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


#: Modules, imported one after the other in a new process -> what is not imported with them.
IMPORTED = {
    "flinkish.minicluster": SPARKS,
    "flinkish.graph.job_graph": SPARKS,
    "flinkish.runtime.task.task_manager": SPARKS,
    "flinkish.datastream": {"pyspark", "pytest"},
    "flinkish.testing": {"pyspark", "pytest"},
    "flinkish.session.process": SPARKS,
}


def test_neither_the_pure_floors_nor_the_api_import_spark_or_a_test_framework() -> None:
    code = f"import importlib, sys\nfor name, others in {IMPORTED!r}.items():\n importlib.import_module(name)\n"
    code += " assert not (found := others & set(sys.modules)), (name, found)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT.parent)
    assert result.returncode == 0, result.stderr


def test_a_module_is_of_a_size_that_can_be_read() -> None:
    lines = {name_of(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}


def test_a_module_begins_with_what_it_is_for() -> None:
    assert [name_of(path) for path, tree in trees().items() if tree.body and not ast.get_docstring(tree)] == []


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


#: Modules that look at URLs of other things than stored files, such as databases, jars, and pages; or at Spark's words.
URLS = {
    "common/dependencies.py",
    "storage/paths.py",
    "connectors/jdbc/database.py",
    "datastream/stream_execution_environment.py",
    "doctor/machine.py",
    "errors.py",
    "launch/packages.py",
    "launch/spark_command.py",
    "launch/home.py",
    "rest/access.py",
    "rest/client.py",
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
        constants = (node.value for node in nodes_of(path) if isinstance(node, ast.Constant))
        texts[path] = {text for text in constants if isinstance(text, str) and _MODULE.fullmatch(text)} - _KEYS
    # names in stored values are no paths any more, though they once were
    texts[ROOT / "runtime" / "stored" / "names.py"] -= set(NOW_IN)
    texts[ROOT / "runtime" / "stored" / "opcodes.py"] -= {FORMER}
    assert set().union(*texts.values()) > {"flinkish.launch.daemon", "flinkish.spark.driver_jvm"}
    assert not faults((path, [one for one in found if find_spec(one) is None]) for path, found in texts.items())


def test_no_module_asks_in_which_folder_it_is() -> None:
    asking = {path for path in MODULES if re.search(r"\bPath\(__file__\)|dirname\(__file__\)", path.read_text())}
    assert not asking, "a module may be moved: begin at flinkish.__file__"


def test_only_one_module_looks_at_the_scheme_of_a_path() -> None:
    others = URLS | {"storage/stores.py", "spark/object_stores.py"}
    assert faults((path, _SCHEME.findall(path.read_text())) for path in MODULES if name_of(path) not in others) == {}


def test_one_module_knows_where_the_log_of_a_delta_table_lies() -> None:
    assert [name_of(path) for path in MODULES if "_delta_log" in path.read_text()] == ["delta/log.py"]


#: Modules that give Spark paths of the engine's own files. Connectors give it those of users, as they are.
_SPARKS_PATHS = [
    path for path in MODULES if floor_of(path) in ("checkpoint", "delta", "jobdir", "jobmanager", "spark", "state")
]


def unnamed_paths(nodes: Iterable[ast.AST]) -> list[str]:
    """The calls in a module that give Spark a path which does not name its file system."""
    unnamed = []
    for node in nodes:
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
    assert faults((path, unnamed_paths(nodes_of(path))) for path in _SPARKS_PATHS) == {}


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
    assert unnamed_paths(ast.walk(ast.parse(source)))
