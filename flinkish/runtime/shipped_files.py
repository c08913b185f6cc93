"""The files that a program needs in addition to its code: archives, installed requirements and cached files.

Rule: the driver ships each of them to all workers before the program is unpickled there. A worker finds them under the
names in its job, below the folder in which Spark puts shipped files.
"""

from __future__ import annotations

import glob
import os
import sys
import zlib
from contextlib import suppress
from dataclasses import dataclass


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
