"""The packages that a job takes along: Maven packages, which Spark's own package resolution resolves to jar files, once
for the same packages; and the zip of flinkish that is shipped to the executors.

Rule: the resolution prints nothing unless it fails. Spark prints a report of the resolution at every start with
``--packages``. So the resolution runs in a session of its own, its output goes to a file, and the job gets the jar
files that were found. Libraries that are among Spark's own jars are left out, since Spark's class loaders look there
first in any case.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import re
import shlex
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from flinkish.errors import ConnectionFailedError, EnvironmentVersionError, FinalOperationError, FlinkishError
from flinkish.interpreter import python_command
from flinkish.launch.home import default_spark_settings, spark_home
from flinkish.launch.options import SparkOptions, comma_list

if TYPE_CHECKING:
    from importlib.abc import Traversable


# archives of other contents are removed after this time, when no job can be about to start with them
_KEEP_S = 24 * 3600.0
_SUFFIXES = ("", ".py", ".typed", ".conf", ".properties", ".xml")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # no time stamps of files: the same sources give the same bytes


def own_archive(cache: Path) -> Path:
    """The archive of the flinkish that this process has imported: from a folder (site-packages, a checkout), or from a
    zip that may hold other packages as well."""
    return archive(files(__name__.partition(".")[0]), cache)


def archive(package: Traversable, cache: Path) -> Path:
    """Zip a Python package into the directory ``cache``, unless an archive of the same content exists there, and return
    the path of the archive.

    Rule: the name of the archive contains a hash of its content. So the same sources are zipped once, two drivers that
    start together cannot disturb each other, and a running job keeps the archive that it started with.
    """
    contents = sorted(_sources(package, f"{package.name}/"))
    digest = hashlib.sha256()
    for name, data in contents:
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    target = cache / f"{package.name}-{digest.hexdigest()[:16]}.zip"
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        _remove_old(cache, package.name)
        _write(target, contents)
    return target


def _sources(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources(entry, f"{prefix}{entry.name}/")
        elif Path(entry.name).suffix in _SUFFIXES:
            yield prefix + entry.name, entry.read_bytes()


def _write(target: Path, contents: list[tuple[str, bytes]]) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, suffix=".tmp")
    with os.fdopen(descriptor, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, data in contents:
            zipped.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
    os.chmod(temporary, 0o644)  # mkstemp's 0600 would hide it from executors that run as another user
    os.replace(temporary, target)


def _remove_old(cache: Path, name: str) -> None:
    for path in cache.glob(f"{name}-*.zip"):
        if time.time() - path.stat().st_mtime > _KEEP_S:
            path.unlink(missing_ok=True)


#: The key of Spark's setting that lists Maven packages.
PACKAGES = "spark.jars.packages"

# the user's options and settings that influence a resolution
_RESOLUTION_OPTIONS = ("--repositories", "--properties-file")
_EXCLUDES = "spark.jars.excludes"
_RESOLUTION_SETTINGS = (
    "spark.jars.ivy",
    "spark.jars.ivySettings",
    "spark.jars.repositories",
    "spark.driver.defaultJavaOptions",
    "spark.driver.extraJavaOptions",
)

# if one of these is true, a library of the user wins over Spark's own
_USERS_FIRST = ("spark.driver.userClassPathFirst", "spark.executor.userClassPathFirst")

#: The SHA-256 digests of the jars of Delta Lake, in the version of ``spark-defaults.conf`` and for each Spark, and of
#: those that it needs, by the names that Spark's resolution gives them.
_DIGESTS = {
    "com.fasterxml.jackson.datatype_jackson-datatype-jdk8-2.13.5.jar": (
        "e58761751fea8a00dc626aae1c5f1be38c5cfd487aeb333d933a4ab5f5a73c55"
    ),
    "io.delta_delta-kernel-api-4.4.0.jar": "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11",
    "io.delta_delta-kernel-defaults-4.4.0.jar": "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b",
    "io.delta_delta-kernel-unitycatalog-4.4.0.jar": "cea22dfb4ac562b3cd27bf652697750e8336009d73fb06631363aaaad5345ffa",
    "io.delta_delta-spark_4.0_2.13-4.4.0.jar": "49e899667168b9412f83cbe894ce264107d7b896d6c5e12edca4e216845c1104",
    "io.delta_delta-spark_4.1_2.13-4.4.0.jar": "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
    "io.delta_delta-spark_4.2_2.13-4.4.0.jar": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    "io.delta_delta-storage-4.4.0.jar": "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    "io.unitycatalog_unitycatalog-client-0.6.0.jar": "48257499a86b801a3e2372cec55ac226ca1c1c7eabe5c118e7302f29a1fdbc19",
    "io.unitycatalog_unitycatalog-hadoop-0.6.0.jar": "c47b63c961c87102b9e1d63809a0915ba4c86b7652f57c8d39ca3a05b441a150",
}

#: Jars whose digests others compare.
_CHECKED_ELSEWHERE = ("org.apache.flink_flink-runtime-web-",)

#: What the jars in `_DIGESTS` have in their names that fit to one version of Spark only.
_DELTA_OF_ANY_SPARK = "_delta-spark_"

#: Where Spark's resolution leaves jars, below the user's home; the number is Ivy's version.
_IVY_JARS = ".ivy2*/jars"

_JAR = re.compile(r"(.+?)-\d.*\.jar")

_PROGRAM = """
from pyspark.sql import SparkSession
session = SparkSession.builder.getOrCreate()
jars = session.conf.get("spark.jars")
session.stop()
open(sys.argv[1], "w").write(jars)
"""


def resolve(packages: str, options: SparkOptions, cache: Path) -> list[str]:
    """The jars of Maven packages and of everything that they depend on, as URIs or paths.

    Args:
        packages: comma-separated Maven coordinates.
        options: the user's options; those about repositories, exclusions and the JVM are used.
        cache: the directory in which the result is remembered, and the log of the resolution written.

    Raises:
        ConnectionFailedError: a package cannot be found or downloaded; the message quotes Spark's report.
        EnvironmentVersionError: there is no Java.
        FinalOperationError: a jar of Delta Lake is not the one whose digest flinkish knows.
    """
    arguments = [*options.only(*_RESOLUTION_OPTIONS).tokens(), "--master", "local[1]"]
    settings = {key: options.conf(key) for key in _RESOLUTION_SETTINGS}
    arguments += [token for key, value in settings.items() if value for token in ("--conf", f"{key}={value}")]
    excluded = comma_list(options.either("--exclude-packages", _EXCLUDES), _sparks_own(options))
    if excluded:
        arguments += ["--exclude-packages", excluded]
    arguments += ["--conf", "spark.ui.enabled=false", "--packages", packages]
    command = shlex.join([*arguments, "pyspark-shell"])
    home = os.path.expanduser("~")  # Spark puts the jars below it
    key = hashlib.sha256(f"{home}\0{sys.prefix}\0{command}".encode()).hexdigest()[:16]
    known = cache / f"packages-{key}.json"
    jars = _remembered(known)
    if jars is None:
        jars = _left_by_ivy(packages, options) or resolved_by_spark(packages, command, cache, key)
        _check(jars)
        _say_what_is_unknown(jars)
        # drivers that start at once read it, whole or not at all
        unfinished = known.with_suffix(f".{os.getpid()}.tmp")
        unfinished.write_text(json.dumps(jars))
        unfinished.replace(known)
    else:
        _check(jars)
    return jars


def _left_by_ivy(packages: str, options: SparkOptions) -> list[str] | None:
    """The jars of Delta Lake where a resolution has left them, for whatever program: what a resolution would find again
    in a session of Spark, which takes as long as the start of a job. None if something else is asked for, or one of
    them is not there."""
    if packages != default_spark_settings().get(PACKAGES) or options.either("--exclude-packages", _EXCLUDES):
        return None
    if not _sparks_own(options):
        return None
    organisation, module, version = packages.split(":")
    delta = f"{organisation}_{module}-{version}.jar"
    names = [name for name in _DIGESTS if name == delta or _DELTA_OF_ANY_SPARK not in name]
    for folder in ivy_folders():
        jars = [str(folder / name) for name in names]
        if all(map(os.path.exists, jars)):
            return jars
    return None


def ivy_folders() -> list[Path]:
    """The folders in which Spark's resolution leaves jars."""
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir  # as Java knows it, whatever HOME says
    except KeyError:
        return []
    return sorted(Path(home).glob(_IVY_JARS))


def _check(jars: list[str]) -> None:
    """Compare the jars whose digests are known with these, at each start: they lie where a JVM takes its code from."""
    for path in map(Path, map(path_of, jars)):
        expected = _DIGESTS.get(path.name)
        if expected is not None and hashlib.sha256(path.read_bytes()).hexdigest() != expected:
            raise FinalOperationError(
                f"{path.name} is not the file that Delta Lake has published under this name",
                where=str(path),
                expected=f"the SHA-256 digest {expected}",
                hint="find out who has changed it or its repository; without the file it is downloaded again",
            )


def _say_what_is_unknown(jars: list[str]) -> None:
    names = [path.name for path in map(Path, map(path_of, jars))]
    unknown = [name for name in names if name not in _DIGESTS and not name.startswith(_CHECKED_ELSEWHERE)]
    if unknown:
        print(f"flinkish: no digest to compare with: {', '.join(unknown)}", file=sys.stderr, flush=True)


def _sparks_own(options: SparkOptions) -> list[str]:
    """Patterns that exclude the libraries in Spark's own folder of jars; none if the user's libraries come first."""
    if "true" in map(options.conf, _USERS_FIRST):
        return []
    names = map(_JAR.fullmatch, (jar.name for jar in Path(spark_home(os.environ), "jars").glob("*.jar")))
    return sorted({f"*:{name.group(1)}" for name in names if name is not None})


def _remembered(known: Path) -> list[str] | None:
    """The jars that an earlier resolution found; None if there was none, or a jar does not exist any more."""
    try:
        jars = json.loads(known.read_text())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(jars, list) or not all(isinstance(jar, str) for jar in jars):
        return None
    return jars if all(os.path.exists(path_of(jar)) for jar in jars) else None


def path_of(jar: str) -> str:
    """The path of a jar that `resolve` has found, which is a path itself or a URI with escapes.

    >>> path_of("file:///My%20Jars/a.jar"), path_of("/My Jars/a.jar")
    ('/My Jars/a.jar', '/My Jars/a.jar')
    """
    parsed = urlparse(jar)
    return unquote(parsed.path) if parsed.scheme else jar


def resolved_by_spark(packages: str, command: str, cache: Path, key: str) -> list[str]:
    """The jars that a session of Spark finds, begun with this command in a process of its own; see `resolve`."""
    print(f"flinkish: resolving {packages} (the first time only)", file=sys.stderr, flush=True)
    cache.mkdir(parents=True, exist_ok=True)
    log, found = cache / f"packages-{key}.log", cache / f"packages-{key}.{os.getpid()}.tmp"
    # without extensions: a session that names Delta's classes can start only when Delta has been resolved
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": command, "PYTHONSAFEPATH": "1"}
    environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # the resolution must start a JVM of its own, even under spark-submit and Spark Connect
    for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):
        environment.pop(name, None)
    try:
        with log.open("wb") as output:
            program = python_command(_PROGRAM, str(found), own=False)
            code = subprocess.run(program, env=environment, stdout=output, stderr=output, check=False).returncode
        if code != 0 or not found.exists():
            raise _failed(packages, log)
        return [jar for jar in comma_list(found.read_text()).split(",") if jar]
    finally:
        found.unlink(missing_ok=True)


def java_is_missing(where: str) -> EnvironmentVersionError:
    """The error for a JVM that has ended at once, and has said nothing that tells another reason."""
    return EnvironmentVersionError(
        "Java could not be started",
        where=where,
        expected="Java 17 or newer",
        hint="install it, and set JAVA_HOME unless `java` is on the PATH; programs in the minicluster need none "
        "(-D execution.target=minicluster)",
    )


def _failed(packages: str, log: Path) -> FlinkishError:
    text = log.read_text(errors="replace")
    lines = text.split("\n")
    telling = [line.strip() for line in lines if "UNRESOLVED" in line or "not found" in line or "Exception" in line]
    if not telling and "JAVA_GATEWAY_EXITED" in text:
        return java_is_missing(f"log: {log}")
    return ConnectionFailedError(
        "Spark could not resolve " + packages + (": " + "; ".join(telling[:5]) if telling else ""),
        where=f"log: {log}",
        expected="a Maven repository that has them and can be reached",
        hint="mend the connection, or name a mirror: `-- --repositories URL`",
    )
