"""What the package has of the listed names, and what it has besides."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tests.public_names.pyflink_names import ListedModule

#: Public modules of flinkish that PyFlink does not have.
OWN_MODULES = [
    "flinkish.datastream.connectors.datagen",
    "flinkish.datastream.connectors.delta",
    "flinkish.datastream.connectors.spark",
    "flinkish.state",
    "flinkish.table",
    "flinkish.testing",
]


@dataclass(frozen=True)
class Names:
    """Names of classes (``Class``, ``Outer.Inner``), members (``Class.member``), functions (``function``) and of what a
    module takes from others or has besides (``package.module:name``)."""

    present: frozenset[str]
    missing: frozenset[str]
    beyond: frozenset[str]


def compare(modules: list[ListedModule]) -> Names:
    """Look for every listed name in flinkish's module of the same place, and there for public names that are not
    listed."""
    found: dict[str, bool] = {}
    beyond: set[str] = set()
    classes: dict[str, Any] = {}
    for module in modules:
        here = _imported(module.here)
        found.update((f"{module.here}:{name}", hasattr(here, name)) for name in module.imported)
        found.update((name, hasattr(here, name)) for name in module.functions)
        for listed in module.classes:
            classes[listed.name] = _attribute(here, listed.name)
            found[listed.name] = classes[listed.name] is not None
            found.update((f"{listed.name}.{name}", hasattr(classes[listed.name], name)) for name in listed.members)
    for module in modules:
        known = {*module.imported, *module.functions, *classes}
        exported = getattr(_imported(module.here), "__all__", ())
        beyond.update(f"{module.here}:{name}" for name in exported if name not in known)
    for own in OWN_MODULES:
        beyond.update(f"{own}:{name}" for name in _imported(own).__all__ if name not in classes)
    present = {name for name in found if found[name]}
    beyond.update(name for name in _members(classes) if name not in present)
    return Names(frozenset(present), frozenset(found.keys() - present), frozenset(beyond))


def _members(classes: dict[str, Any]) -> Iterator[str]:
    """The public methods and properties of the classes. Not those that a class has from another one of them."""
    public = {found for found in classes.values() if isinstance(found, type)}
    for name, found in classes.items():
        ancestors = found.__mro__ if isinstance(found, type) else ()
        inherited = {member for base in ancestors[1:] if base in public for member in dir(base)}
        for owner in ancestors:
            if owner.__module__.startswith("flinkish"):
                yield from (f"{name}.{member}" for member in _methods(owner) if member not in inherited)


def _methods(owner: type) -> Iterator[str]:
    for member, value in vars(owner).items():
        is_method = callable(value) or isinstance(value, (property, staticmethod, classmethod))
        if is_method and not isinstance(value, type) and not member.startswith("_"):
            yield member


def _imported(name: str) -> ModuleType:
    """The module, or an empty one if it does not exist."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        return ModuleType(name)


def _attribute(owner: Any, path: str) -> Any:
    for part in path.split("."):
        owner = getattr(owner, part, None)
    return owner
