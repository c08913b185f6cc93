"""Tests use the public names of flinkish. A private name is for the module that has it: a test that touches one fails
when the inside of that module changes, though its behaviour has not."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from tests.support.sources import MODULES, PACKAGE, nodes_of

TESTS = PACKAGE.parent / "tests"
_WORD = re.compile(r"\b_\w+")

#: Names with an underscore that others than flinkish have given: tuples with names, IPython, PyFlink, and `os._exit`.
OF_OTHERS = {
    "_asdict",
    "_exit",
    "_fields",
    "_j_data_stream",
    "_j_stream_execution_environment",
    "_render_traceback_",
    "_replace",
    "_repr_html_",
}

#: Functions and methods with an argument that is the name of an attribute.
BY_NAME = {"delattr", "getattr", "hasattr", "object", "setattr"}

#: File below tests/ -> the private names that it touches, each as often as it does. The table only shrinks.
TOUCHED: dict[str, tuple[str, ...]] = {
    # the id of the job is made of the sink's topic, which only its settings know
    "integration/connectors/test_kafka_sink.py": ("_settings",),
    # Spark shows the plan of a query that has ended to nobody else
    "integration/engine/test_many_operators.py": ("_query",),
    # PyFlink's API has no way back to the default of the process
    "unit/datastream/test_storage_and_slots.py": ("_default_local_parallelism",),
    # whether a request has come through before the function goes on
    "unit/minicluster/test_ends_of_epochs.py": ("_cluster", "_cluster"),
    # what lies in the body of a task is not told from the rest of it
    "unit/runtime/state/saved/test_stored_operator_states.py": ("_stored",),
    # the process that runs the tests may have left its first folder
    "unit/runtime/stored/test_shipped_files.py": ("_HOME", "_entered"),
}


def is_private(name: str) -> bool:
    """Whether a name is private, and not one that Python itself uses or that means nothing (``_``)."""
    return name.startswith("_") and not name.startswith("__") and name != "_" and name not in OF_OTHERS


def defined(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The private names of functions, classes, variables and attributes that a module defines."""
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr
        else:
            continue
        if is_private(name):
            yield name


def of_itself(node: ast.expr) -> bool:
    """Whether an object is that of the method: of a class of the tests, which has private names of its own."""
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def touched(tree: ast.AST, private: set[str]) -> Iterator[str]:
    """The private names of flinkish in a module of the tests: of attributes, in imports, and as arguments of those that
    take the name of an attribute. Those that the module has defined itself do not count."""
    nodes = list(ast.walk(tree))
    own = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))} | {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and of_itself(node.value)
    }
    for node in nodes:
        names: Iterable[str] = ()
        if isinstance(node, ast.Attribute) and not of_itself(node.value):
            names = (node.attr,) if node.attr not in own else ()
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "flinkish":
            names = (alias.name for alias in node.names)
        elif isinstance(node, ast.Call) and name_of(node.func) in BY_NAME:
            names = (
                part.value.rpartition(".")[2]
                for part in node.args
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            )
        yield from (name for name in names if name in private)


def name_of(function: ast.expr) -> str:
    """The last part of the name of what is called; "": it has none."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def test_tests_touch_only_the_private_names_of_the_table() -> None:
    private = {name for path in MODULES for name in defined(nodes_of(path))}
    assert len(private) > 1_000
    texts = {str(path.relative_to(TESTS)): path.read_text() for path in sorted(TESTS.rglob("*.py"))}
    # most modules have no such word at all
    found = {
        path: tuple(sorted(touched(ast.parse(text), private))) if private & set(_WORD.findall(text)) else ()
        for path, text in texts.items()
    }
    new = {path: Counter(names) - Counter(TOUCHED.get(path, ())) for path, names in found.items()}
    gone = {path: Counter(names) - Counter(found.get(path, ())) for path, names in TOUCHED.items()}
    assert {path: names for path, names in new.items() if names} == {}, "test through a public name"
    assert {path: names for path, names in gone.items() if names} == {}, "the table shrinks"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a._inside", ["_inside"]),
        ("a._inside._inside = 1", ["_inside", "_inside"]),
        ("from flinkish.common import _inside", ["_inside"]),
        ("monkeypatch.setattr(module, '_inside', 1)", ["_inside"]),
        ("monkeypatch.setattr('flinkish.common._inside', 1)", ["_inside"]),
        ("patch.object(module, '_inside', 1)", ["_inside"]),
        ("getattr(a, '_inside')", ["_inside"]),
        ("from elsewhere import _inside", []),
        ("class A:\n def f(self):\n  self._inside = 1\nA()._inside", []),
        ("def _inside(): ...\nmodule._inside", []),
        ("a._unknown; a.__class__; row._replace(a=1); '_inside'; f'{a}_inside'", []),
    ],
)
def test_what_counts_as_touching_a_private_name(text: str, found: list[str]) -> None:
    assert list(touched(ast.parse(text), {"_inside"})) == found
