"""Jars come from Maven coordinates, once: the second call for the same coordinates touches no network.

Java and PySpark are there wherever flinkish's tests run, Maven may not be: the resolver is the Ivy in PySpark.
A resolved set lies in a folder of its own, which appears by a rename when it is complete.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pyspark

RESOLVE_TIMEOUT_S = 600
_SETTINGS = """<ivysettings><settings defaultResolver="central"/>
<resolvers><ibiblio name="central" m2compatible="true"/></resolvers></ivysettings>"""


class JarsNotResolved(Exception):
    """Ivy could not find or download what was asked for; the message ends with what it said."""


@dataclass(frozen=True)
class Coordinate:
    """One Maven artifact, e.g. `Coordinate("org.apache.kafka", "kafka_2.13", "3.9.2")`."""

    organisation: str
    module: str
    version: str


@dataclass(frozen=True)
class JarSet:
    """Jars that are resolved together: artifacts with their runtime dependencies.

    `excluded_modules` are left out wherever they occur.
    """

    name: str
    coordinates: tuple[Coordinate, ...]
    excluded_modules: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where the jars lie once they are resolved; its name changes with all that is asked for."""
        return cache_folder() / "jars" / f"{self.name}-{hashlib.sha256(self.ivy_xml().encode()).hexdigest()[:12]}"

    def ivy_xml(self) -> str:
        """Returns the set as an Ivy module descriptor."""
        dependencies = [
            f"<dependency org={quoteattr(c.organisation)} name={quoteattr(c.module)} rev={quoteattr(c.version)} "
            'conf="default->master,runtime"/>'
            for c in self.coordinates
        ]
        excludes = [f"<exclude module={quoteattr(module)}/>" for module in sorted(set(self.excluded_modules))]
        lines = "\n".join([*dependencies, *excludes])
        return (
            '<ivy-module version="2.0"><info organisation="flinkish" module="tests"/>\n'
            '<configurations><conf name="default"/></configurations>\n'
            f"<dependencies>\n{lines}\n</dependencies></ivy-module>\n"
        )


def resolve_jars(*alternatives: JarSet) -> list[Path]:
    """Returns the jars of the first set that can be had, downloaded at the first call only.

    A set that is in the cache is taken before anything is tried over the network. Raises JarsNotResolved, with
    Ivy's words on the last alternative, if none can be had.
    """
    found = _cached(alternatives)
    if found is None:
        with lock(cache_folder() / "resolve.lock"):
            found = _cached(alternatives) or _first_resolved(alternatives)
    return sorted(found.folder.glob("*.jar"))


def java_executable() -> str:
    """Returns the Java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def pyspark_jars_folder() -> Path:
    """Returns the folder with the jars of the installed PySpark."""
    return Path(pyspark.__file__).parent / "jars"


def cache_folder() -> Path:
    """Returns the user's cache folder for these tests (`FLINKISH_TEST_CACHE` overrides it)."""
    chosen = os.environ.get("FLINKISH_TEST_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(chosen) if chosen else base / "flinkish-tests"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _cached(alternatives: Sequence[JarSet]) -> JarSet | None:
    return next((jar_set for jar_set in alternatives if jar_set.folder.exists()), None)


def _first_resolved(alternatives: Sequence[JarSet]) -> JarSet:
    for jar_set in alternatives[:-1]:
        try:
            return _resolve(jar_set)
        except JarsNotResolved:
            continue
    return _resolve(alternatives[-1])


def _resolve(jar_set: JarSet) -> JarSet:
    unfinished = jar_set.folder.with_name(jar_set.folder.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    (unfinished / "ivysettings.xml").write_text(_SETTINGS)
    (unfinished / "ivy.xml").write_text(jar_set.ivy_xml())
    command = [
        java_executable(), "-XX:TieredStopAtLevel=1", "-cp", str(pyspark_jars_folder() / "*"), "org.apache.ivy.Main",
        "-settings", str(unfinished / "ivysettings.xml"), "-ivy", str(unfinished / "ivy.xml"),
        "-cache", str(cache_folder() / "ivy"), "-types", "jar", "bundle",
        "-retrieve", str(unfinished / "[artifact]-[revision](-[classifier]).[ext]"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT_S, check=False)
    if done.returncode != 0:
        shutil.rmtree(unfinished)
        raise JarsNotResolved(f"Ivy ended with {done.returncode} for\n{jar_set.ivy_xml()}\n{done.stdout[-4000:]}")
    unfinished.rename(jar_set.folder)
    return jar_set


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Keeps other processes that ask for the same lock waiting."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
