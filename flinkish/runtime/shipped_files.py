"""Files that a program has beside its code: archives, installed requirements, cached files.

Rule upheld here: the driver ships each of them to all workers before the program is unpickled there, and a worker finds
them by the names of its job, below the folder that Spark gives its files.
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
        # somebody has deleted it
        return os.sep


#: The folder that this process began in.
_HOME = _working_directory()


@dataclass(frozen=True)
class ShippedFiles:
    """What the driver has shipped. Shipped names are relative to the folder of Spark's files."""

    #: folder as user code names it -> shipped name
    archives: tuple[tuple[str, str], ...] = ()
    #: name as user code asks for it -> shipped name
    cached: tuple[tuple[str, str], ...] = ()
    #: shipped names of folders that modules are found in, before those of the worker
    modules: tuple[str, ...] = ()
    #: folders of each node that modules are found in, behind those of the worker
    python_path: tuple[str, ...] = ()

    def install(self, folder: str) -> None:
        """Make modules importable. May be called again and again."""
        for name in reversed(self.modules):
            path = _found(folder, name)
            if path not in sys.path:
                sys.path.insert(0, path)
        sys.path.extend(path for path in self.python_path if path not in sys.path)

    def enter(self, folder: str) -> None:
        """Let relative paths lead into the archives, as in Flink: they lie in the working directory of the worker."""
        if not self.archives and not _entered:
            return
        place = _HOME
        if self.archives:
            place = os.path.join(folder, f"flinkish-work-{self.archives_digest}")
            for target, name in self.archives:
                link = os.path.join(place, target)
                os.makedirs(os.path.dirname(link), exist_ok=True)
                # an earlier task, or another worker of this executor, may have made it
                with suppress(FileExistsError):
                    os.symlink(_found(folder, name), link)
        if _working_directory() != place:
            # Spark gives executors' folders as relative paths
            sys.path[:] = [at_home(path) if path.startswith(".") else path for path in sys.path]
            os.chdir(place)
            _entered.add(place)

    @property
    def archives_digest(self) -> str:
        """Tells apart jobs with other archives, or the same ones at other places."""
        return f"{zlib.crc32(repr(self.archives).encode()):08x}"

    def cached_files(self, folder: str) -> dict[str, str]:
        """The name of each cached file -> where it lies on this node."""
        return {name: _found(folder, shipped) for name, shipped in self.cached}


#: Folders that this process was in because of its jobs; empty: where it works is not flinkish's to say.
_entered: set[str] = set()

NO_FILES = ShippedFiles()


def at_home(path: str) -> str:
    """A path that is relative to the folder that this process began in, also after it went elsewhere."""
    return os.path.normpath(os.path.join(_HOME, path))


def _found(folder: str, name: str) -> str:
    """Spark Connect keeps the files of a session in a folder of its own below, and does not always say in which.
    Shipped names say what is in a file, so that one is as good as another."""
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        path = next(iter(glob.glob(os.path.join(glob.escape(folder), "*", glob.escape(name)))), path)
    return path
