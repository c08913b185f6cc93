"""The files that the workers of a program need: configuration keys, which are read and written as PyFlink does, and the
files on this machine, unpacked and installed.

Rules upheld here: only this module knows the syntax of the values (``path#target``, ``name:n,path:p``). Requirements
are installed once, in the process that submits the job, so that all workers have the same versions.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlparse

from flinkish.common.configuration import Configuration
from flinkish.common.options import core
from flinkish.common.options import python as python_options
from flinkish.common.units import format_map, parse_map
from flinkish.errors import ConfigurationError
from flinkish.interpreter import python_command

#: The connectors and formats of Flink, and Kafka's client in Java, which stands beside them.
_JAR_OF_FLINK = re.compile(r"(?:flink|kafka-clients)-.*\.jar")

#: Separates a path from its parameter: the folder of an archive, the cache of the requirements.
_PARAMETER = "#"


@dataclass(frozen=True)
class CachedFile:
    """A file or directory that functions find by its name in the DistributedCache."""

    name: str
    path: str
    executable: bool = False


@dataclass(frozen=True)
class Dependencies:
    """All files that the workers of a program need."""

    python_files: tuple[str, ...] = ()
    #: pairs of a path and the folder that it is unpacked to
    archives: tuple[tuple[str, str], ...] = ()
    requirements: str | None = None
    #: a folder with the packages of the requirements, so that none is downloaded
    requirements_cache: str | None = None
    cached_files: tuple[CachedFile, ...] = ()
    jars: tuple[str, ...] = ()
    #: the names of jars that belong to Flink, which flinkish does not need: programs add them for its connectors
    jars_of_flink: tuple[str, ...] = ()
    python_path: tuple[str, ...] = ()


def dependencies_of(configuration: Configuration) -> Dependencies:
    """The dependencies that a configuration declares.

    Raises:
        ConfigurationError: an archive has a target outside the working directory, or a cached file is malformed.
    """
    jars = [*configuration.get(core.JARS), *configuration.get(core.CLASSPATHS)]
    of_flink = {jar: name for jar in jars if _JAR_OF_FLINK.fullmatch(name := jar.rpartition("/")[2])}
    requirements, _, cache = (configuration.get(python_options.REQUIREMENTS) or "").partition(_PARAMETER)
    return Dependencies(
        python_files=tuple(_paths(configuration.get(python_options.FILES))),
        archives=tuple(_archive(text) for text in _paths(configuration.get(python_options.ARCHIVES))),
        requirements=requirements or None,
        requirements_cache=cache or None,
        cached_files=tuple(_cached_file(text) for text in configuration.get(core.CACHED_FILES)),
        jars=tuple(jar for jar in jars if jar not in of_flink),
        jars_of_flink=tuple(of_flink.values()),
        python_path=tuple(
            path for path in (configuration.get(python_options.PYTHONPATH) or "").split(os.pathsep) if path
        ),
    )


def add_python_file(configuration: Configuration, path: str) -> None:
    """Add a file to ``python.files``, unless it is in the list."""
    files = _paths(configuration.get(python_options.FILES))
    if path not in files:
        configuration.set(python_options.FILES, ",".join([*files, path]))


def add_python_archive(configuration: Configuration, path: str, target: str | None) -> None:
    """Add an archive to ``python.archives``; it is unpacked to ``target``, or to a folder of its own name if None."""
    text = path if target is None else path + _PARAMETER + target
    configuration.set(python_options.ARCHIVES, ",".join([*_paths(configuration.get(python_options.ARCHIVES)), text]))


def set_python_requirements(configuration: Configuration, path: str, cache: str | None) -> None:
    """Set the requirements file, and the folder of its packages (``cache``), in place of those that were set before."""
    configuration.set(python_options.REQUIREMENTS, path if cache is None else path + _PARAMETER + cache)


def add_cached_file(configuration: Configuration, file: CachedFile) -> None:
    """Add a file to ``pipeline.cached-files``.

    Raises:
        ConfigurationError: the name is taken, as in Flink.
    """
    texts = configuration.get(core.CACHED_FILES)
    if any(_cached_file(text).name == file.name for text in texts):
        raise ConfigurationError(
            f"cached file '{file.name}' exists already",
            where="register_cached_file()",
            expected="a name of its own for each cached file",
            hint="choose another name",
        )
    values = {"name": file.name, "path": file.path, **({"executable": "true"} if file.executable else {})}
    configuration.set(core.CACHED_FILES, [*texts, format_map(values)])


def local_file(path: str, what: str) -> str:
    """The absolute path of a file on this machine.

    Raises:
        ConfigurationError: the path is of another file system, or does not exist.
    """
    url = urlparse(path)
    local = url.path if url.scheme == "file" else path
    if url.scheme not in ("", "file") or not os.path.exists(local):
        raise ConfigurationError(
            f"{what} '{path}' is not there",
            where="the driver",
            expected="a file that this process can read",
            hint="correct the path",
        )
    return os.path.abspath(local)


def unpacked_archive(path: str) -> str:
    """The folder with the content of an archive, which is unpacked at the first call; a folder is returned as it is.

    Raises:
        ConfigurationError: the file is missing, or no archive.
    """
    archive = local_file(path, "the archive")
    if os.path.isdir(archive):
        return archive
    folder = staging_folder() / f"unpacked-{digest_of(archive)}"
    if folder.exists():
        return str(folder)
    temporary = Path(tempfile.mkdtemp(dir=staging_folder()))
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                extracted = packed.extract(info, temporary)
                mode = info.external_attr >> 16 & 0o777
                if mode and not info.is_dir():
                    os.chmod(extracted, mode | 0o400)
    elif tarfile.is_tarfile(archive):
        with tarfile.open(archive) as packed_tar:
            packed_tar.extractall(temporary, filter="data")
    else:
        raise ConfigurationError(f"'{archive}' is no archive", expected="a zip or tar file", hint="pack it with zip -r")
    temporary.rename(folder)
    return str(folder)


def installed_requirements(needed: Dependencies) -> str:
    """The folder with the installed requirements, which pip fills at the first call.

    Raises:
        ConfigurationError: a file is missing, or pip cannot install the requirements.
    """
    file = local_file(needed.requirements or "", "the file of requirements")
    found = (
        None if needed.requirements_cache is None else local_file(needed.requirements_cache, "the folder of packages")
    )
    folder = staging_folder() / f"requirements-{digest_of(file)}-{'' if found is None else digest_of(found)}"
    if not folder.exists():
        temporary = tempfile.mkdtemp(dir=staging_folder())
        source = [] if found is None else ["--no-index", "--find-links", found]
        pip = 'import runpy\nrunpy.run_module("pip", run_name="__main__", alter_sys=True)'
        words = ["install", "--disable-pip-version-check", "--no-warn-script-location", *source]
        command = python_command(pip, *words, "--requirement", file, "--target", temporary, own=False)
        ended = subprocess.run(command, capture_output=True, text=True)
        if ended.returncode:
            raise ConfigurationError(
                f"the requirements '{file}' cannot be installed: {ended.stderr.strip()[-2000:]}",
                expected="packages that pip finds",
                hint="look at pip's message" if found is None else f"add what is missing to {found}",
            )
        os.rename(temporary, folder)
    return str(folder)


def digest_of(path: str) -> str:
    """A digest of the content of a file, or of the names and contents of all files of a folder."""
    digest = hashlib.sha256()
    root = Path(path)
    for file in sorted(root.rglob("*")) if root.is_dir() else [root]:
        if file.is_file() and "__pycache__" not in file.parts:
            digest.update(str(file.relative_to(root)).encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


@cache
def staging_folder() -> Path:
    """The temporary folder of this process, which is deleted when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="flinkish-files-")
    _folders.append(folder)
    return Path(folder.name)


def staged_folders() -> list[str]:
    """The temporary folder of this process, if there is one yet: requirements are installed there."""
    return [folder.name for folder in _folders]


_folders: list[tempfile.TemporaryDirectory[str]] = []


def _paths(text: str | None) -> list[str]:
    return [path.strip() for path in (text or "").split(",") if path.strip()]


def _archive(text: str) -> tuple[str, str]:
    path, _, target = text.partition(_PARAMETER)
    target = target or os.path.basename(path)
    if os.path.isabs(target) or ".." in target.split("/"):
        raise ConfigurationError(
            f"the archive '{path}' cannot be unpacked to '{target}'",
            where="add_python_archive()",
            expected="a folder below the working directory",
            hint="give a relative path as target_dir",
        )
    return path, target


def _cached_file(text: str) -> CachedFile:
    try:
        values = parse_map(text)
        return CachedFile(values["name"], values["path"], values.get("executable", "false").lower() == "true")
    except (KeyError, ValueError) as error:
        raise ConfigurationError(
            f"an entry of the configuration key '{core.CACHED_FILES.key}' names no cached file",
            expected="name:NAME,path:PATH",
        ) from error
