"""The classes of a deployed program, found by name: what stored values may be instances of, besides plain data.

The driver makes a `ProgramClasses` of its process when it deploys a job; it travels with the job graph. Nothing is ever
looked up outside of it: not in what a worker happens to have imported, and not by importing what stored data names.

* Classes of the program's main module are held themselves, since that module is ``__main__`` in the driver alone. They
  are named ``__main__:QualifiedName``, however the program was started.
* Classes of other modules are imported. Only modules that the driver had imported at deployment count, and of these
  not the standard library's, flinkish's, or those of installed packages (unless `packages` names the package): a class
  such as ``subprocess.Popen`` does something when it is called.
* An alias leads from the name of a class that was renamed or moved to the class that it is now.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from flinkish.errors import ArgumentTypeError, ProgramError, StoredClassError

#: The program's main module, whatever it is called where the program runs.
MAIN = "__main__"

#: Top-level packages that are never part of a program, wherever they are installed.
_INFRASTRUCTURE = frozenset({"flinkish", "pyspark", "py4j", "delta", "pytest", "_pytest"})


@dataclass(frozen=True)
class ProgramClasses:
    """``main``: classes at the top level of the main module, by name. ``modules``: names of the other modules of the
    program. ``aliases``: dotted name of a class as it was stored -> class of the program."""

    main: Mapping[str, type] = field(default_factory=dict)
    modules: frozenset[str] = frozenset()
    aliases: Mapping[str, type] = field(default_factory=dict)

    @staticmethod
    def of_this_process(aliases: Mapping[str, type] | None = None, packages: Collection[str] = ()) -> ProgramClasses:
        """The classes of the program that runs in this process. ``packages``: installed ones that belong to it."""
        main = sys.modules.get(MAIN)
        return ProgramClasses(
            {} if main is None else _classes_of(main),
            frozenset(name for name, module in list(sys.modules.items()) if _is_of_program(name, module, packages)),
            dict(aliases or {}),
        )

    def with_main(self, main: Mapping[str, type]) -> ProgramClasses:
        """The same with other classes of the main module."""
        return replace(self, main=dict(main))

    def name_of(self, cls: type) -> str:
        """The name to store a class under.

        Raises:
            StoredClassError: it could not be found again under its name; says why, and what to do.
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
            StoredClassError: the program has none, or it is not one whose instances may be stored.
        """
        found, (reason, _) = self._look_up(name)
        if found is None:
            text = dotted(name)
            raise StoredClassError(
                f"the stored class {text} is not in the program: {reason}",
                hint=f'if it was renamed or moved: env.register_class_alias("{text}", TheClassNow); else bring it back',
            )
        return found

    def _look_up(self, name: str) -> tuple[type | None, tuple[str, str]]:
        """The class, else why there is none and what to do."""
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
        # the second test: what a module has imported is not the module's, be it a class or not
        if not isinstance(found, type) or stored_name(found) != name:
            where = "the program's main file or notebook" if module_name == MAIN else f"module {module_name}"
            return None, (
                f"there is no class {qualname} in {where}",
                "define the class at the top level, under its own name, before the job is started",
            )
        return found, ("", "")


def qualify(main: Mapping[str, type]) -> None:
    """Give classes of a main module their qualified names back: they travel to workers under their plain names."""
    nested = list(main.items())
    while nested:
        path, cls = nested.pop()
        if cls.__qualname__ != path:
            cls.__qualname__ = path
        for name, value in list(vars(cls).items()):
            is_nested = isinstance(value, type) and value.__module__ == MAIN and value.__qualname__ == name
            if is_nested and main.get(name) is not value:
                nested.append((f"{path}.{name}", value))


#: For what holds no instances of a program's classes.
NO_CLASSES = ProgramClasses()


def stored_name(cls: type) -> str:
    """``module:Qualified.Name``."""
    return f"{cls.__module__}:{cls.__qualname__}"


def dotted(name: str) -> str:
    """A stored name as people write it."""
    return name.replace(":", ".", 1)


def checked_alias(old: str | type, new: type) -> tuple[str, type]:
    """(dotted name, class) of an alias that a program registers.

    Raises:
        TypeError: they are something else.
        ProgramError: the class could not be found again itself.
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
    """The classes that a module has defined; those inside of them are found through them."""
    return {
        name: value
        for name, value in list(vars(module).items())
        if isinstance(value, type) and value.__module__ == module.__name__ and value.__qualname__ == name
    }


def _is_of_program(name: str, module: ModuleType | None, packages: Iterable[str]) -> bool:
    if module is None or name == MAIN:
        return False
    if any(name == package or name.startswith(f"{package}.") for package in packages):
        return True
    top = name.partition(".")[0]
    if top in _INFRASTRUCTURE or top in sys.stdlib_module_names:
        return False
    path = getattr(module, "__file__", None)
    return isinstance(path, str) and not _is_installed(path)


def _is_installed(path: str) -> bool:
    parts = path.replace("\\", "/").split("/")
    return "site-packages" in parts or "dist-packages" in parts


def _not_of_program(module: str) -> tuple[str, str]:
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top in _INFRASTRUCTURE:
        return (
            f"the module {module} is not the program's",
            "store plain data: numbers, texts, dates, tuples, lists, dictionaries, Rows, or classes of the program",
        )
    return (
        f"the module {module} is not the program's: it is that of an installed package, or it was not imported when "
        "the job was started",
        f"import it at the top of the program; name an installed package of your own in flinkish.state.packages: {top}",
    )
