"""The tree that the docstring of flinkish.errors draws is that of the classes."""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from typing import NamedTuple

import pytest

from flinkish import errors
from flinkish.errors import FlinkishError
from flinkish.jobmanager.job_record import who_must_act
from tests.support.sources import MODULES, PACKAGE, nodes_of

#: A line of the tree: what draws its depth, the names of siblings, and who must act.
_LINE = re.compile(r"((?:│   |    )*(?:├── |└── )?)(\w+(?: · \w+)*)(?:  +(\S.*?)  +(no restart|restart))?")

#: The words of the tree for whom `who_must_act` names.
_WHO = {
    "the author of the job": "the program's author",
    "the operator of the cluster": "the operator",
    "nobody": "the platform",
    "the makers of flinkish": "us",
}


class Drawn(NamedTuple):
    """A class of a tree. What is not drawn beside it is what is drawn beside the class above it."""

    parent: str | None
    who: str
    restart: str


def drawn(text: str) -> dict[str, Drawn]:
    """The classes of a drawn tree. Raises ValueError for a line that is none of it, a class that is there twice, and a
    line whose depth is not below a class."""
    result: dict[str, Drawn] = {}
    above: list[str] = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"no line of a tree: {line!r}")
        depth, names = len(match[1]) // 4, match[2].split(" · ")
        if depth != min(depth, len(above)):
            raise ValueError(f"below nothing: {line!r}")
        parent = above[depth - 1] if depth else None
        who, restart = (result[parent].who, result[parent].restart) if parent else ("", "no restart")
        for name in names:
            if name in result:
                raise ValueError(f"twice: {name}")
            result[name] = Drawn(parent, match[3] or who, match[4] or restart)
        above[depth:] = names[-1:]
    return result


def tree_of_the_docstring() -> str:
    """The first indented block of the docstring."""
    found = re.search(r"::\n\n((?:    .*\n)+)", errors.__doc__ or "")
    assert found is not None
    return "\n".join(line[4:] for line in found[1].splitlines())


@cache
def classes_of_the_package() -> dict[str, type[FlinkishError]]:
    """All classes of the package that are derived from FlinkishError, by name; found in its source, without importing
    what needs Spark."""
    bases: dict[str, tuple[str, set[str]]] = {}
    for path in MODULES:
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                names = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
                bases.setdefault(node.name, (module, names))
    found, more = {"FlinkishError"}, True
    while more:
        derived = {name for name, (_, names) in bases.items() if names & found} - found
        found, more = found | derived, bool(derived)
    return {name: getattr(importlib.import_module(bases[name][0]), name) for name in found}


def parent_of(cls: type) -> str | None:
    """The name of the base of an exception that is flinkish's."""
    return next((base.__name__ for base in cls.__bases__ if issubclass(base, FlinkishError)), None)


def test_the_tree_has_each_class_below_its_parent() -> None:
    classes = classes_of_the_package()
    assert {"SimulatedCrash", "MissingFileError"} <= set(classes)
    tree = drawn(tree_of_the_docstring())
    assert {name: one.parent for name, one in tree.items()} == {name: parent_of(cls) for name, cls in classes.items()}


def test_the_tree_says_what_is_restarted() -> None:
    classes = classes_of_the_package()
    said = {name: one.restart == "restart" for name, one in drawn(tree_of_the_docstring()).items()}
    assert said == {name: cls.retryable for name, cls in classes.items()}


def test_the_tree_says_who_must_act() -> None:
    classes = classes_of_the_package()
    tree = drawn(tree_of_the_docstring())
    expected = {name: _WHO[who_must_act(cls.__new__(cls))] for name, cls in classes.items() if cls is not FlinkishError}
    assert {name: one.who for name, one in tree.items() if one.parent} == expected


TREE = """\
A
├── B               us  restart
│   ├── C · D
│   └── E           them  no restart
│       └── F
└── G"""


def test_a_tree_is_read_as_it_is_drawn() -> None:
    assert drawn(TREE) == {
        "A": Drawn(None, "", "no restart"),
        "B": Drawn("A", "us", "restart"),
        "C": Drawn("B", "us", "restart"),
        "D": Drawn("B", "us", "restart"),
        "E": Drawn("B", "them", "no restart"),
        "F": Drawn("E", "them", "no restart"),
        "G": Drawn("A", "", "no restart"),
    }


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("└── A", "twice: A"),
        ("│   │   │   └── H", "below nothing"),
        ("└── H, I", "no line of a tree"),
        ("└── H    us", "no line of a tree"),
    ],
)
def test_what_is_no_tree_is_refused(line: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        drawn(f"{TREE}\n{line}")
