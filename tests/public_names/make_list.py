"""``python -m tests.public_names.make_list`` writes the lists of PyFlink's names, by importing PyFlink.

A name of a module is what ``dir()`` shows and a program can import: what the module defines, what it imports from other
modules of PyFlink's API, and what is set when it is imported. Left out are private names, modules, names whose home is
another package (``typing``, ``abc``, ``py4j``), and helpers around Java objects where a module merely imports them:
nearly every module has ``get_gateway``.

The wheels of some versions are unpacked side by side, and one environment has what they import. ``pyflink_2_3.txt``
gets the names of 2.3, ``pyflink_1_x.txt`` those of 1.15 to 1.20 that 2.3 does not have. No Java is needed.
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(__file__).parent
NEWEST = "2.3.0"
#: Versions whose names still stand in programs, and the Python that their wheels are for. The modules that are imported
#: are pure Python, and run on the Python of this command.
FORMER = {"1.15.4": "38", "1.17.2": "38", "1.20.1": "311"}
#: What PyFlink's modules import.
IMPORTED = ["py4j==0.10.9.7", "cloudpickle", "python-dateutil", "pytz", "numpy", "pandas", "pyarrow"]
IMPORTED += ["ruamel.yaml", "typing_extensions"]

#: Packages of which all modules are listed, and single modules.
PACKAGES = ["pyflink.datastream", "pyflink.common", "pyflink.metrics"]
MODULES = ["pyflink.java_gateway", "pyflink.util.java_utils", "pyflink.table"]
#: PyFlink's own tests and examples, which no program imports.
_LEFT_OUT = (".tests", ".examples")
#: Modules whose names are listed in no module that merely imports them.
_HELPERS = ("pyflink.java_gateway", "pyflink.util", "pyflink.serializers", "pyflink.fn_execution")

_HEAD = """# {which}
# Written by `python -m tests.public_names.make_list`: all modules below pyflink.datastream, pyflink.common and
# pyflink.metrics, and of others those that programs of the DataStream API import. A module begins a line. Below it
# stand the names that it takes from other modules of PyFlink (after "import"), its type variables and constants (after
# "var"), its functions (after "def"), and its classes with their bases of this list. Below a class stand its methods,
# properties and constants, without private and without inherited ones.
"""


def names_of_modules() -> dict[str, dict[str, Any]]:
    """All names of the PyFlink that can be imported here. Module -> ``import``, ``var``, ``def``: names; ``class``:
    class -> (bases, members)."""
    found: dict[str, dict[str, Any]] = {}
    for name in _module_names():
        module = importlib.import_module(name)
        found[name] = _names_of(module)
    known = {owner for entry in found.values() for owner in entry["class"]}
    for entry in found.values():
        for bases, _ in entry["class"].values():
            bases[:] = [base for base in bases if base in known]
    return found


def _module_names() -> list[str]:
    names = []
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        below = [found.name for found in pkgutil.walk_packages(path, f"{package}.")]
        names += [package, *sorted(name for name in below if not any(part in name for part in _LEFT_OUT))]
    return [*names, *MODULES]


def _names_of(module: ModuleType) -> dict[str, Any]:
    entry: dict[str, Any] = {"import": [], "var": [], "def": [], "class": {}}
    assigned = _assigned(module)
    for name in dir(module):
        value = getattr(module, name)
        home = getattr(value, "__module__", None) or ""
        if name.startswith("_") or inspect.ismodule(value):
            continue
        if inspect.isclass(value) and home == module.__name__ and value.__qualname__ == name:
            entry["class"].update(_classes(name, value))
        elif inspect.isfunction(value) and home == module.__name__:
            entry["def"].append(name)
        elif name in assigned:
            entry["var"].append(name)
        elif home.startswith("pyflink.") and not home.startswith(_HELPERS):
            entry["import"].append(name)
    return entry


def _assigned(module: ModuleType) -> set[str]:
    """The names that the module's own code assigns."""
    tree = ast.parse(inspect.getsource(module)) if Path(module.__file__ or "").stat().st_size else ast.Module([], [])
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    targets += [node.target for node in tree.body if isinstance(node, ast.AnnAssign)]
    return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}


def _classes(path: str, owner: type) -> dict[str, tuple[list[str], list[str]]]:
    """The class, and those within it."""
    members, nested = [], {}
    for name, value in vars(owner).items():
        if name.startswith("_"):
            continue
        if inspect.isclass(value) and value.__qualname__ == f"{owner.__qualname__}.{name}":
            nested.update(_classes(f"{path}.{name}", value))
        else:
            members.append(name)
    return {path: ([base.__qualname__ for base in owner.__bases__], members), **nested}


def text_of(names: dict[str, dict[str, Any]]) -> str:
    """The names in the form of the lists."""
    lines: list[str] = []
    for module, entry in names.items():
        lines += ["", module]
        for kind in ("import", "var"):
            lines += _wrapped([kind, *entry[kind]], 4) if entry[kind] else []
        lines += [f"    def {name}" for name in entry["def"]]
        for name, (bases, members) in entry["class"].items():
            lines.append(f"    {name}({', '.join(bases)})" if bases else f"    {name}")
            lines += _wrapped(members, 8)
    return "\n".join(lines) + "\n"


def _wrapped(words: list[str], indent: int) -> list[str]:
    lines: list[str] = []
    for word in words:
        if not lines or len(lines[-1]) + len(word) >= 119:
            lines.append(" " * (indent if not lines else 8) + word)
        else:
            lines[-1] += f" {word}"
    return lines


def without(former: list[dict[str, dict[str, Any]]], newest: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """All names of former versions that the newest one does not have. A class that the newest one has in another module
    is one that the module takes from there; of such classes there are only the members that the newest one lacks."""
    nothing: dict[str, Any] = {"import": [], "var": [], "def": [], "class": {}}
    members_of_newest = {name: found[1] for entry in newest.values() for name, found in entry["class"].items()}
    result: dict[str, dict[str, Any]] = {}
    for module, entry in ((module, entry) for version in former for module, entry in version.items()):
        there = newest.get(module, nothing)
        known = {name for kind in nothing for name in there[kind]}
        merged = result.setdefault(module, copy.deepcopy(nothing))
        moved = [name for name in entry["class"] if name in members_of_newest and "." not in name]
        for kind, names in (("import", [*entry["import"], *moved]), ("var", entry["var"]), ("def", entry["def"])):
            merged[kind] += [name for name in names if name not in known and name not in merged[kind]]
        for name, (bases, members) in entry["class"].items():
            lacking = [member for member in members if member not in members_of_newest.get(name, ())]
            if lacking or name not in members_of_newest:
                before = merged["class"].setdefault(name, (bases, []))[1]
                before += [member for member in lacking if member not in before]
    return {module: entry for module, entry in result.items() if any(entry.values())}


def main() -> None:
    """Make the environment and both lists."""
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder, "environment", "bin", "python")
        venv.create(python.parents[1], with_pip=True)
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", *IMPORTED], check=True)
        found = {}
        for version, tag in {NEWEST: "", **FORMER}.items():
            wheels = Path(folder, version)
            chosen = ["--python-version", tag] if tag else []
            arguments = ["download", "--no-deps", "--only-binary=:all:", *chosen, "--dest", wheels]
            subprocess.run([*pip, *arguments, f"apache-flink=={version}"], check=True)
            with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
                wheel.extractall(wheels)
            environment = {**os.environ, "PYTHONPATH": str(wheels)}
            printed = subprocess.run([python, __file__, "--print"], env=environment, check=True, stdout=subprocess.PIPE)
            found[version] = json.loads(printed.stdout)
    newest = found.pop(NEWEST)
    head = _HEAD.format(which=f"The public names of PyFlink {NEWEST}.")
    (FOLDER / "pyflink_2_3.txt").write_text(head + text_of(newest))
    head = _HEAD.format(which=f"The public names of PyFlink {', '.join(FORMER)} that {NEWEST} does not have.")
    (FOLDER / "pyflink_1_x.txt").write_text(head + text_of(without(list(found.values()), newest)))


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        print(json.dumps(names_of_modules()))
    else:
        main()
