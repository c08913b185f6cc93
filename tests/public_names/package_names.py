"""What the package has of the listed names, and what it has besides."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from flinkish.common.no_effect import AbsentName
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


#: what is found where nothing is
_NOTHING = object()


@dataclass(frozen=True)
class Names:
    """Names of classes (``Class``, ``Outer.Inner``), members (``Class.member``), functions (``function``) and of what a
    module takes from others or has besides (``package.module:name``)."""

    present: frozenset[str]
    missing: frozenset[str]
    beyond: frozenset[str]
    #: names that can be imported and not be used -> what to do instead
    absent: Mapping[str, str] = field(default_factory=dict)


def compare(modules: list[ListedModule]) -> Names:
    """Look for every listed name in flinkish's module of the same place, and there for public names that are not
    listed."""
    found: dict[str, bool] = {}
    absent: dict[str, str] = {}
    beyond: set[str] = set()
    classes: dict[str, Any] = {}
    known: dict[str, set[str]] = {}

    def look(name: str, value: Any) -> None:
        found[name] = value is not _NOTHING
        if isinstance(value, AbsentName):
            absent[name] = value.instead

    for module in modules:
        here = _imported(module.here)
        known.setdefault(module.here, set()).update(module.imported, module.functions)
        known[module.here].update(listed.name for listed in module.classes)
        for name in module.imported:
            look(f"{module.here}:{name}", getattr(here, name, _NOTHING))
        for name in module.functions:
            look(name, getattr(here, name, _NOTHING))
        for listed in module.classes:
            owner = _attribute(here, listed.name)
            look(listed.name, owner)
            if not isinstance(owner, AbsentName):
                classes[listed.name] = owner
                found.update((f"{listed.name}.{name}", hasattr(owner, name)) for name in listed.members)
    for here, names in known.items():
        exported = getattr(_imported(here), "__all__", ())
        beyond.update(f"{here}:{name}" for name in exported if name not in names)
    for own in OWN_MODULES:
        beyond.update(f"{own}:{name}" for name in _imported(own).__all__ if name not in known.get(own, ()))
    present = {name for name in found if found[name]} - absent.keys()
    beyond.update(name for name in _members(classes) if name not in present)
    return Names(frozenset(present), frozenset(found.keys() - present - absent.keys()), frozenset(beyond), absent)


def _members(classes: dict[str, Any]) -> Iterator[str]:
    """The public methods and properties of the classes. Not those that a class has from another one of them."""
    public = {found for found in classes.values() if isinstance(found, type)}
    for name, found in classes.items():
        ancestors = found.__mro__ if isinstance(found, type) else ()
        inherited = {
            member for base in ancestors[1:] if base in public for member in dir(base) if hasattr(base, member)
        }
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
        owner = owner if isinstance(owner, AbsentName) else getattr(owner, part, _NOTHING)
    return owner
