"""The files that a program needs in addition to its code: archives, installed requirements and cached files.

Rule: the driver ships each of them to all workers before the program is unpickled there. A worker finds them under the
names in its job, below the folder in which Spark puts shipped files. The minicluster finds them where they are on this
machine (`files_here`).
"""

from __future__ import annotations

import glob
import os
import shutil
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from flinkish.common.dependencies import (
    CachedFile,
    Dependencies,
    digest_of,
    installed_requirements,
    local_file,
    staging_folder,
    unpacked_archive,
)


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
    """The files that the driver has shipped. Shipped names are relative to the folder of Spark's files."""

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
