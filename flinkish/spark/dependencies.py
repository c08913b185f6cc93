"""Ships the files that a program depends on to the workers, before any of the program's code runs there.

Rule upheld here: shipped files and archives are named by a digest of their content, since Spark never replaces a file
that it already has. So two jobs of one driver may ship different files of the same name, and a job that ships the same
file again ships nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from weakref import WeakKeyDictionary

from flinkish.common.configuration import Configuration
from flinkish.common.dependencies import (
    dependencies_of,
    digest_of,
    installed_requirements,
    local_file,
    staging_folder,
    unpacked_archive,
)
from flinkish.runtime.stored.classes import ShippedFiles, archives_here
from flinkish.spark.session import is_remote

#: Session -> names of all that was shipped in it.
_shipped: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()


def ship(spark: Any, configuration: Configuration) -> ShippedFiles:
    """Ship the jars, Python files, requirements, archives and cached files that a job's configuration names.

    Returns what the workers need in order to find them.

    Raises:
        ConfigurationError: a file is missing, an archive is none, or the requirements cannot be installed.
    """
    needed = dependencies_of(configuration)
    for jar in needed.jars:
        _once(spark, f"jar {jar}", lambda path=jar: _add_jar(spark, path))  # type: ignore[misc]
    files = [local_file(path, "the Python file") for path in needed.python_files]
    modules = [_ship_python_file(spark, path) for path in files]
    if needed.requirements is not None:
        modules.append(_ship_folder(spark, installed_requirements(needed)))
    return ShippedFiles(
        archives=tuple((target, _ship_archive(spark, path)) for path, target in needed.archives),
        cached=tuple(
            (file.name, _ship_cached_file(spark, local_file(file.path, "the cached file"), file.executable))
            for file in needed.cached_files
        ),
        modules=tuple(modules),
        python_path=needed.python_path,
        here=(*files, *archives_here(needed), *py_files_of(spark)),
    )


def py_files_of(spark: Any) -> list[str]:
    """Where the driver may have the files that were shipped as the program's own when Spark was started
    (``--py-files``) or with ``addPyFile``. Spark Connect does not say."""
    if is_remote(spark):
        return []
    from pyspark import SparkContext, SparkFiles

    context = SparkContext._active_spark_context
    if context is None:
        return []
    named = [path for path in context.getConf().get("spark.submit.pyFiles", "").split(",") if path]
    names = {os.path.basename(path) for path in (*named, *getattr(context, "_python_includes", ()))}
    folder = SparkFiles.getRootDirectory()
    local = [urlparse(path).path for path in named if urlparse(path).scheme in ("", "file")]
    # single modules lie directly in the folder of Spark's files; a driver in the cluster has its files beside it
    modules = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".py")]
    places = (folder, os.getcwd(), os.path.join(os.getcwd(), "__pyfiles__"))
    return [*local, *modules, *(os.path.join(place, name) for place in places for name in sorted(names))]


def _once(spark: Any, name: str, add: Callable[[], None]) -> None:
    shipped = _shipped.setdefault(spark, set())
    if name not in shipped:
        add()
        shipped.add(name)


def _add_jar(spark: Any, jar: str) -> None:
    if is_remote(spark):
        spark.addArtifacts(local_file(jar, "the jar"))
        return
    if "://" not in jar:
        jar = local_file(jar, "the jar")
    elif jar.startswith("file:"):
        local_file(jar, "the jar")
    quoted = jar.replace("\\", "\\\\").replace('"', '\\"')
    spark.sql(f'ADD JAR "{quoted}"')


def _ship_python_file(spark: Any, path: str) -> str:
    """Ship a Python file, folder or archive (zip, egg, wheel); the entry that it needs on the workers' Python path."""
    folder = _ship_packed(spark, Path(path))
    return folder if os.path.isdir(path) or path.endswith(".py") else os.path.join(folder, os.path.basename(path))


def _ship_cached_file(spark: Any, path: str, executable: bool) -> str:
    if os.path.isdir(path):
        return _ship_folder(spark, path)
    # Spark does not keep the permissions of single files, but those of the files in an archive
    if executable:
        return os.path.join(_ship_packed(spark, Path(path), mode=0o755), os.path.basename(path))
    name = f"flinkish-{digest_of(path)}-{os.path.basename(path)}"
    staged = staging_folder() / name
    shutil.copyfile(path, staged)
    _once(spark, name, lambda: spark.addArtifacts(str(staged), file=True))
    return name


def _ship_archive(spark: Any, path: str) -> str:
    """Ship the content of an archive. It is unpacked here, since Spark cannot unpack every kind, and packed again as a
    tar file, which Spark unpacks with its permissions."""
    return _ship_folder(spark, unpacked_archive(path))


def _ship_folder(spark: Any, path: str) -> str:
    return _ship_packed(spark, Path(path))


def _ship_packed(spark: Any, path: Path, mode: int | None = None) -> str:
    """Ship the content of a folder, or one file, as an archive that Spark unpacks; the name of the folder into which
    it does."""
    # the content of a file does not tell what it is called: two modules may have the same one
    called = "" if path.is_dir() else f"-{hashlib.sha256(path.name.encode()).hexdigest()[:8]}"
    name = f"flinkish-{digest_of(str(path))}{called}{'' if mode is None else f'-{mode:o}'}"

    def add() -> None:
        packed = staging_folder() / f"{name}.tar.gz"
        if not packed.exists():
            with tarfile.open(packed, "w:gz") as archive:
                for entry in sorted(path.iterdir()) if path.is_dir() else [path]:
                    archive.add(entry, arcname=entry.name, filter=lambda info: _with_mode(info, mode))
        spark.addArtifacts(f"{packed}#{name}", archive=True)

    _once(spark, name, add)
    return name


def _with_mode(info: tarfile.TarInfo, mode: int | None) -> tarfile.TarInfo:
    if mode is not None:
        info.mode = mode
    return info
