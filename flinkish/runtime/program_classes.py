"""The classes of a deployed program, found by name: stored values may hold their instances, besides plain data.

The driver makes a `ProgramClasses` of its process when it deploys a job, and it travels with the job graph. No class is
ever looked up elsewhere: not in modules that a worker happens to have imported, and not by importing modules that only
stored data names.

* Classes of the program's main module are held themselves, since that module is ``__main__`` only in the driver. They
  are named ``__main__:QualifiedName``, however the program was started.
* Classes of other modules are imported. Only modules of the program are allowed (`ProgramPlaces`) that the driver had
  imported at deployment. All others are libraries: calling a class such as ``subprocess.Popen`` has effects.
* An alias leads from the former name of a class that was renamed or moved to the present class.
"""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import ModuleType
from typing import Any

from flinkish.common.dependencies import staged_folders
from flinkish.errors import ArgumentTypeError, ProgramError, StoredClassError
from flinkish.runtime.shipped_files import at_home

#: The name that the program's main module has in stored names, whatever it is called where the program runs.
MAIN = "__main__"

#: Top-level packages that are never part of a program, wherever they are installed.
_INFRASTRUCTURE = frozenset({"flinkish", "pyspark", "py4j", "delta", "pytest", "_pytest"})


@dataclass(frozen=True)
class ProgramClasses:
    """Finds the classes of a program by their stored names.

    Args:
        main: the classes at the top level of the main module, by name.
        modules: names of the other modules of the program.
        aliases: dotted name of a class as it was stored -> class of the program.
    """

    main: Mapping[str, type] = field(default_factory=dict)
    modules: frozenset[str] = frozenset()
    aliases: Mapping[str, type] = field(default_factory=dict)

    @staticmethod
    def of_this_process(
        aliases: Mapping[str, type] | None = None, packages: Collection[str] = (), shipped: Iterable[str] = ()
    ) -> ProgramClasses:
        """The classes of the program that runs in this process.

        Args:
            aliases: former names of classes.
            packages: libraries that belong to the program.
            shipped: the files, folders and archives that the program has shipped to the workers as its own.
        """
        main = sys.modules.get(MAIN)
        places = ProgramPlaces.of_this_process(main, shipped)
        modules = list(sys.modules.items())
        return ProgramClasses(
            {} if main is None else _classes_of(main),
            frozenset(name for name, module in modules if _is_of_program(name, module, packages, places)),
            dict(aliases or {}),
        )

    def with_main(self, main: Mapping[str, type]) -> ProgramClasses:
        """A copy with other classes of the main module."""
        return replace(self, main=dict(main))

    def name_of(self, cls: type) -> str:
        """The name under which to store a class.

        Raises:
            StoredClassError: the class could not be found again under its name; the error says why, and what to do.
        """
        name = stored_name(cls)
        if "<" in cls.__qualname__:
            raise StoredClassError(
                f"{dotted(name)} is defined inside a function, so that it could not be found again",
                expected="classes at the top level of the program or of its modules, or nested in such classes",
                hint="move the class there",
            )
        found, why = self._look_up(name)
        if found is not cls:
            reason, hint = why
            if found is not None:
                reason, hint = "the program has another class of that name", "define it once, at the top level"
            raise StoredClassError(f"{dotted(name)} could not be found again: {reason}", hint=hint)
        return name

    def find(self, name: str) -> type:
        """The class that was stored under a name.

        Raises:
            StoredClassError: the program has no class of that name, or its instances must not be stored.
        """
        if type(name) is not str:
            raise StoredClassError(f"a {type(name).__name__} stands in place of the name of a class")
        found, (reason, _) = self._look_up(name)
        if found is None:
            text = dotted(name)
            raise StoredClassError(
                f"the stored class {text} is not in the program: {reason}",
                hint=f'if it was renamed or moved: env.register_class_alias("{text}", TheClassNow); else bring it back',
            )
        return found

    def _look_up(self, name: str) -> tuple[type | None, tuple[str, str]]:
        """The class of a stored name, or None with the reason and a hint on what to do."""
        alias = self.aliases.get(dotted(name))
        if alias is not None:
            return alias, ("", "")
        module_name, _, qualname = name.partition(":")
        top, *nested = qualname.split(".")
        if module_name == MAIN:
            found: Any = self.main.get(top)
        elif module_name not in self.modules:
            return None, _not_of_program(module_name)
        else:
            try:
                found = vars(importlib.import_module(module_name)).get(top)
            except ImportError as error:
                return None, (
                    f"the module {module_name} cannot be imported here ({error})",
                    "ship the module to the workers, with env.add_python_file or --py-files",
                )
        for part in nested:
            found = vars(found).get(part) if isinstance(found, type) else None
        # the second test rules out classes that the module has only imported from elsewhere
        if not isinstance(found, type) or stored_name(found) != name:
            where = "the program's main file or notebook" if module_name == MAIN else f"module {module_name}"
            return None, (
                f"there is no class {qualname} in {where}",
                "define the class at the top level, under its own name, before the job is started",
            )
        return found, ("", "")


def qualify(main: Mapping[str, type]) -> None:
    """Restore the qualified names of the classes of a main module, which travel to workers under their plain names."""
    nested = list(main.items())
    while nested:
        path, cls = nested.pop()
        if cls.__qualname__ != path:
            cls.__qualname__ = path
        for name, value in list(vars(cls).items()):
            is_nested = isinstance(value, type) and value.__module__ == MAIN and value.__qualname__ == name
            if is_nested and main.get(name) is not value:
                nested.append((f"{path}.{name}", value))


#: For data that holds no instances of a program's classes.
NO_CLASSES = ProgramClasses()


def stored_name(cls: type) -> str:
    """The name under which a class is stored: ``module:Qualified.Name``."""
    return f"{cls.__module__}:{cls.__qualname__}"


def dotted(name: str) -> str:
    """A stored name in its usual notation, ``module.Qualified.Name``."""
    return name.replace(":", ".", 1)


def checked_alias(old: str | type, new: type) -> tuple[str, type]:
    """Check an alias that a program registers, and return it as (dotted name, class).

    Raises:
        ArgumentTypeError: the old name is not a dotted name or a class, or the new one is not a class. It is a
            TypeError.
        ProgramError: the new class is defined inside a function, so that it could not be found again.
    """
    text = dotted(stored_name(old)) if isinstance(old, type) else old
    if not isinstance(text, str) or "." not in text.strip(".") or ":" in text:
        raise ArgumentTypeError(
            f"the old name is {old!r}",
            where="register_class_alias()",
            expected="a text such as 'shop.model.Cart' or '__main__.Cart'",
            hint="take it from the error that names the class",
        )
    if not isinstance(new, type):
        raise ArgumentTypeError(
            f"the alias of {text} is {new!r}",
            where="register_class_alias()",
            expected="a class of the program",
            hint="pass the class, not its name",
        )
    if "<" in new.__qualname__:
        raise ProgramError(
            f"the alias of {text} is {new.__qualname__}, a class inside a function",
            where="register_class_alias",
            expected="a class at the top level of the program or of its modules",
            hint="move the class there",
        )
    return text, new


def _classes_of(module: ModuleType) -> dict[str, type]:
    """The classes that a module defines at its top level; classes nested in them are found through them."""
    return {
        name: value
        for name, value in list(vars(module).items())
        if isinstance(value, type) and value.__module__ == module.__name__ and value.__qualname__ == name
    }


@dataclass(frozen=True)
class ProgramPlaces:
    """Where the modules of a program lie. All paths are absolute and lead through no link.

    Args:
        shipped: what the program has shipped to the workers: files, folders and archives.
        folders: the folder of the main script, and those above it that the program itself has put on the module path;
            where an installed tool or nothing at all is the main script (a notebook, pytest), the current folder.
            What lies below them counts as well, without hidden folders, and without archives such as PEX files.
        libraries: the folders of ``PYTHONPATH`` and of installed requirements.
    """

    shipped: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()

    @staticmethod
    def of_this_process(main: ModuleType | None, shipped: Iterable[str]) -> ProgramPlaces:
        """The places of the program that runs in this process."""
        named = [at_home(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        libraries = {os.path.realpath(path) for path in (*named, *staged_folders())}
        folders = _folders_of(main)
        for entry in map(os.path.realpath, sys.path):
            is_above = entry != os.sep and any(folder.startswith(entry + os.sep) for folder in folders)
            if is_above and entry not in libraries and not _is_installed(entry):
                folders.append(entry)
        return ProgramPlaces(tuple(map(os.path.realpath, shipped)), tuple(folders), tuple(libraries))

    def has(self, file: str) -> bool:
        """Whether the file of a module is the program's."""
        if any(file == path or _lies_below(file, path) for path in self.shipped):
            return True
        folder = _nearest(file, self.folders)
        if folder is None or len(_nearest(file, self.libraries) or "") > len(folder):
            return False
        hidden = any(part.startswith(".") for part in file[len(folder) :].split(os.sep))
        # a file inside of an archive is none of the file system
        return not hidden and not _is_installed(os.path.dirname(file)) and os.path.isfile(file)


def _lies_below(file: str, folder: str) -> bool:
    """Whether a file is in a folder or archive, and not in a place for libraries there."""
    return file.startswith(folder.rstrip(os.sep) + os.sep) and not _is_installed(file[len(folder) :])


def _nearest(file: str, folders: Iterable[str]) -> str | None:
    """The lowest of the folders that a file is in or below of."""
    return max((path for path in folders if file.startswith(path.rstrip(os.sep) + os.sep)), key=len, default=None)


def _folders_of(main: ModuleType | None) -> list[str]:
    """The folder of a main script; the current one, if there is none."""
    file, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if isinstance(file, str):
        folder = os.path.dirname(os.path.realpath(file))
        for _ in range(spec.name.count(".") if spec is not None else 0):
            folder = os.path.dirname(folder)  # of python -m package.module: the folder of the package
        if not _is_installed(folder) and folder not in _places_of_tools():
            return [folder]
    return list(dict.fromkeys(os.path.realpath(path) for path in (at_home("."), *(["."] if "" in sys.path else []))))


@cache
def _places_of_tools() -> frozenset[str]:
    """Where the main scripts of installed tools lie, such as that of pytest."""
    folders = (sysconfig.get_path("scripts"), os.path.dirname(sys.executable))
    return frozenset(os.path.realpath(folder) for folder in folders)


def _is_of_program(name: str, module: ModuleType | None, packages: Iterable[str], places: ProgramPlaces) -> bool:
    if module is None or name == MAIN:
        return False
    if any(name == package or name.startswith(f"{package}.") for package in packages):
        return True
    top = name.partition(".")[0]
    if top in _INFRASTRUCTURE or top in sys.stdlib_module_names:
        return False
    path = getattr(module, "__file__", None)
    return isinstance(path, str) and places.has(_real(path))


#: Where the modules of Python itself lie; not all of them are named in ``sys.stdlib_module_names``.
_STANDARD_LIBRARY = frozenset(
    os.path.realpath(path) for path in map(sysconfig.get_path, ("stdlib", "platstdlib")) if path
)


@cache  # a notebook makes one job after the other, with hundreds of modules that lie where they lay
def _real(path: str) -> str:
    return os.path.realpath(path)


@cache
def _is_installed(folder: str) -> bool:
    """Whether a folder is one of the standard library or of installed packages, or lies in one."""
    parts = folder.replace("\\", "/").split("/")
    if "site-packages" in parts or "dist-packages" in parts:
        return True
    return any(folder == library or folder.startswith(library + os.sep) for library in _STANDARD_LIBRARY)


def _not_of_program(module: str) -> tuple[str, str]:
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top in _INFRASTRUCTURE:
        return (
            f"the module {module} is not the program's",
            "store plain data: numbers, texts, dates, tuples, lists, dictionaries, Rows, or classes of the program",
        )
    return (
        f"the module {module} is not the program's: it is that of a library (an installed package, a requirement, a "
        "folder of PYTHONPATH), or it was not imported when the job was started",
        "import it at the top of the program; a module of your own belongs beside the main script or is shipped "
        f"(env.add_python_file, --py-files), and a library of your own is named in flinkish.state.packages: {top}",
    )
