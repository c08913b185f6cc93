"""What a deployed program brings along: its classes, found by name, since stored values may hold their instances
besides plain data, and the files that it needs in addition to its code.

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

import glob
import importlib
import os
import shutil
import sys
import sysconfig
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from types import ModuleType
from typing import Any

from flinkish.common.dependencies import (
    CachedFile,
    Dependencies,
    digest_of,
    installed_requirements,
    local_file,
    staged_folders,
    staging_folder,
    unpacked_archive,
)
from flinkish.errors import ArgumentTypeError, ProgramError, StoredClassError


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        # the folder was deleted
        return os.sep


#: The folder in which this process has started.
_HOME = _working_directory()


@dataclass(frozen=True)
class ShippedFiles:
    """The files that a program needs in addition to its code, as the driver has shipped them: archives, installed
    requirements and cached files. Shipped names are relative to the folder of Spark's files.

    Rule: the driver ships each of them to all workers before the program is unpickled there. A worker finds them under
    the names in its job, below the folder in which Spark puts shipped files. The minicluster finds them where they are
    on this machine (`files_here`).
    """

    #: folder as user code names it -> shipped name
    archives: tuple[tuple[str, str], ...] = ()
    #: name as user code asks for it -> shipped name
    cached: tuple[tuple[str, str], ...] = ()
    #: shipped names of folders with modules, searched before the worker's own module path
    modules: tuple[str, ...] = ()
    #: folders with modules that exist on each node, searched after the worker's own module path
    python_path: tuple[str, ...] = ()
    #: where the program's own files, folders and archives with modules lie in the process of the driver, in which they
    #: were not shipped; requirements are none of these
    here: tuple[str, ...] = ()

    def install(self, folder: str) -> None:
        """Make the shipped modules importable, given the folder of Spark's files. Repeated calls have no effect."""
        for name in reversed(self.modules):
            path = _found(folder, name)
            if path not in sys.path:
                sys.path.insert(0, path)
        sys.path.extend(path for path in self.python_path if path not in sys.path)

    def enter(self, folder: str) -> None:
        """Link the archives into a folder of the job and make it the working directory, so that relative paths lead
        into the archives, as in Flink. Without archives, return to the first working directory if this process has left
        it."""
        if not self.archives and not _entered:
            return
        place = _HOME
        if self.archives:
            place = os.path.join(folder, f"flinkish-work-{self.archives_digest}")
            for target, name in self.archives:
                link = os.path.join(place, target)
                os.makedirs(os.path.dirname(link), exist_ok=True)
                # an earlier task, or another worker of this executor, may have made the link
                with suppress(FileExistsError):
                    os.symlink(_found(folder, name), link)
        if _working_directory() != place:
            # Spark gives the folders of executors as relative paths
            sys.path[:] = [at_home(path) if path.startswith(".") else path for path in sys.path]
            os.chdir(place)
            _entered.add(place)

    @contextmanager
    def entered_here(self) -> Iterator[None]:
        """`enter` the folder of the archives for a while, in the process of the program itself, whose working directory
        is what it was afterwards. Without archives it is not touched."""
        if not self.archives:
            yield
            return
        before = _working_directory()
        self.enter(str(staging_folder()))
        try:
            yield
        finally:
            os.chdir(before)

    @property
    def archives_digest(self) -> str:
        """A digest that differs between jobs with different archives, or with the same ones under other names."""
        return f"{zlib.crc32(repr(self.archives).encode()):08x}"

    def cached_files(self, folder: str) -> dict[str, str]:
        """The cached files, as name -> path on this node."""
        return {name: _found(folder, shipped) for name, shipped in self.cached}


#: The folders that `enter` has made the working directory of this process; while it is empty, jobs without archives
#: leave the working directory alone.
_entered: set[str] = set()

NO_FILES = ShippedFiles()


def files_here(needed: Dependencies) -> ShippedFiles:
    """The files for a job that runs in this process: archives unpacked, requirements installed, modules as they are.

    Raises:
        ConfigurationError: a file is missing, an archive is none, or the requirements cannot be installed.
    """
    files = [local_file(path, "the Python file") for path in needed.python_files]
    modules = [_module_entry(path) for path in files]
    own = (*files, *modules)
    if needed.requirements is not None:
        modules.append(installed_requirements(needed))
    archives = tuple((target, unpacked_archive(path)) for path, target in needed.archives)
    cached = tuple((file.name, _cached_path(file)) for file in needed.cached_files)
    return ShippedFiles(archives, cached, tuple(modules), needed.python_path, (*own, *archives_here(needed)))


def archives_here(needed: Dependencies) -> tuple[str, ...]:
    """The archives that a program ships, and the folders that they are unpacked to, in this process.

    Raises:
        ConfigurationError: a file is missing, or an archive is none.
    """
    found = ((local_file(path, "the archive"), unpacked_archive(path)) for path, _ in needed.archives)
    return tuple(path for both in found for path in both)


def _cached_path(file: CachedFile) -> str:
    path = local_file(file.path, "the cached file")
    if not file.executable or os.path.isdir(path) or os.access(path, os.X_OK):
        return path
    copy = staging_folder() / f"executable-{digest_of(path)}"
    shutil.copy(path, copy)
    copy.chmod(0o755)
    return str(copy)


def _module_entry(path: str) -> str:
    """What makes a Python file, folder or archive importable. The folder around a file may hold other modules, which
    nobody has asked for."""
    if os.path.isdir(path) or not path.endswith(".py"):
        return path
    folder = staging_folder() / f"module-{digest_of(path)}"
    folder.mkdir(exist_ok=True)
    shutil.copy(path, folder)
    return str(folder)


def at_home(path: str) -> str:
    """The absolute path of one that is relative to the folder in which this process has started, even if the working
    directory has changed since."""
    return os.path.normpath(os.path.join(_HOME, path))


def _found(folder: str, name: str) -> str:
    """The path of a shipped file. Spark Connect keeps the files of a session in a subfolder and does not always say in
    which one. Shipped names depend on the content of the file, so any file of that name will do."""
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        path = next(iter(glob.glob(os.path.join(glob.escape(folder), "*", glob.escape(name)))), path)
    return path


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
        if self.shipped and any(file == path or _lies_below(file, path) for path in self.shipped):
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
    above = [path for path in folders if file.startswith(path.rstrip(os.sep) + os.sep)]
    return max(above, key=len) if above else None


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
    if packages and any(name == package or name.startswith(f"{package}.") for package in packages):
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
