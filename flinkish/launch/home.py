"""The directory of an installation, FLINKISH_HOME, whose files in ``conf/`` win over the defaults of the package; and
the folder of the Spark that a driver starts, with what a platform has put into it.

Rule: without FLINKISH_HOME the defaults apply, however a program is started. ``spark-submit.sh`` sets FLINKISH_HOME to
its checkout.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import pkgutil
import re
import shutil
import tempfile
import time
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from flinkish.errors import ConfigurationError
from flinkish.launch.options import read_properties
from flinkish.launch.spark_version import spark_of_delta
from flinkish.storage.paths import check_private, make_private

_DEFAULTS = "spark-defaults.conf"
_LOGGING = "log4j2.properties"
#: The environment variable that holds settings as JSON, or the name of a file that does.
SETTINGS = "FLINKISH_SETTINGS"
#: The environment variable with the id of the first job of a driver, which whoever starts it has given out already.
JOB_ID = "FLINKISH_JOB_ID"
#: The name of that file in the working directory of a driver in a cluster.
SHIPPED_SETTINGS = "flinkish-settings.json"
# files of settings are removed after this time, when no driver can be about to start with them
_RETAINED_S = 24 * 3600.0
#: Stands for the version of Spark in the name of Delta's package.
_SPARK = "{spark}"


class Home:
    """The files and directories of one installation.

    Args:
        environment: the environment variables, of which FLINKISH_HOME, FLINKISH_CONF and FLINKISH_SETTINGS are read.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        # absolute, since commands that are started run in other directories
        home = os.path.abspath(environment["FLINKISH_HOME"]) if environment.get("FLINKISH_HOME") else None
        self._conf = Path(home, "conf") if home else None
        self._configuration = environment.get("FLINKISH_CONF")
        #: The settings of the command line (`settings_variable`), which win over those of the configuration's file.
        self.settings: dict[str, str] = _parsed(environment.get(SETTINGS) or "{}")
        # a FLINKISH_HOME that is not writable belongs to someone else, and nothing is written to it
        writable = bool(home) and os.access(str(home), os.W_OK)
        self._cache = Path(str(home), ".cache") if writable else Path.home() / ".cache" / "flinkish"

    @cached_property
    def cache(self) -> Path:
        """The directory for files that are made once and used by many starts, and for Spark's log. It decides which
        jars and archives run, so it is made for this user alone.

        Raises:
            FinalOperationError: somebody else can write to it.
        """
        with suppress(OSError):
            # what cannot be made is an error of whoever needs it
            make_private(str(self._cache))
        check_private(str(self._cache), "flinkish's directory of archives and jars")
        return self._cache

    @property
    def configuration_file(self) -> str | None:
        """The path of the file with the configuration of all programs: FLINKISH_CONF, else ``conf/flinkish.yaml`` if it
        exists; None if there is neither."""
        return self._configuration or _path(self._own("flinkish.yaml"))

    @property
    def own_spark_settings(self) -> Path | None:
        """The path of the installation's ``conf/spark-defaults.conf``; None if there is none."""
        return self._own(_DEFAULTS)

    @property
    def logging_file(self) -> str:
        """The path of the log4j2 configuration of Spark's JVM: the installation's, else the package's."""
        return _path(self._own(_LOGGING)) or data_file("flinkish.launch", _LOGGING)

    @property
    def spark_log(self) -> Path:
        """The path of the file to which Spark's warnings and errors are written."""
        return self._cache / "spark.log"

    def _own(self, name: str) -> Path | None:
        return _existing(self._conf / name) if self._conf else None


def settings_variable(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variable by which the settings of a command line reach the program (`Home.settings`), without a
    file or an argument that others could read. Settings that the environment has already remain below them."""
    above = {**Home(environment).settings, **settings}
    return {SETTINGS: json.dumps(above)} if above else {}


def settings_file(home: Home) -> Path:
    """A file in the cache with all settings of a program, for a driver on another machine: those of the configuration's
    file, and above them those of the command line. Only this user can read it.

    Raises:
        ConfigurationError: the configuration's file cannot be read.
    """
    from flinkish.common.config_file import load_yaml  # a start on this machine does not need it

    of_file = load_yaml(home.configuration_file).to_dict() if home.configuration_file else {}
    text = json.dumps({**of_file, **home.settings}, sort_keys=True)
    home.cache.mkdir(parents=True, exist_ok=True)
    for path in home.cache.glob("settings-*.json"):
        if time.time() - path.stat().st_mtime > _RETAINED_S:
            path.unlink(missing_ok=True)
    # not of the content: whoever reads a command line learns nothing of secrets in it
    descriptor, path_text = tempfile.mkstemp(prefix="settings-", suffix=".json", dir=home.cache)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return Path(path_text)


#: The properties of S3 that are handed over, without ``fs.s3a.``.
S3_KEYS = (
    "access.key",
    "secret.key",
    "session.token",
    "endpoint",
    "endpoint.region",
    "path.style.access",
    "connection.ssl.enabled",
)


_S3_PROPERTY = re.compile(rf"fs\.s3a\.(?:bucket\.(.+)\.)?({'|'.join(map(re.escape, S3_KEYS))})")


def s3_settings_of(properties: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The settings of S3 (`flinkish.storage.stores.S3_SETTINGS`) in properties of Hadoop: bucket -> settings, "" for
    all buckets; none where nothing says more than how an endpoint is spoken to.

    >>> s3_settings_of({"fs.s3a.path.style.access": "false", "fs.s3a.connection.ssl.enabled": "true"})
    {}
    >>> s3_settings_of({"fs.s3a.endpoint": "http://minio", "fs.s3a.bucket.in.access.key": "k", "fs.s3a.threads": "9"})
    {'': {'endpoint': 'http://minio'}, 'in': {'access.key': 'k'}}
    """
    found: dict[str, dict[str, str]] = {}
    for name, value in properties.items():
        match = _S3_PROPERTY.fullmatch(name)
        if match is not None and value and (match[2], value) != ("endpoint.region", "sdk"):
            found.setdefault(match[1] or "", {})[match[2]] = value
    names = {name for own in found.values() for name in own}
    return found if names - {"path.style.access", "connection.ssl.enabled"} else {}


def s3_settings_without_spark(environment: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The settings of S3 (`s3_settings_of`) that a session of Spark would have, for commands that start none: those of
    ``$HADOOP_CONF_DIR/core-site.xml``, then ``spark.hadoop.fs.s3a.*`` of the ``spark-defaults.conf`` of Spark and that
    of the installation."""
    properties: dict[str, str] = {}
    site = Path(environment.get("HADOOP_CONF_DIR") or os.devnull, "core-site.xml")
    if site.is_file():
        try:
            entries = list(ElementTree.parse(site).iter("property"))
        except ElementTree.ParseError as error:
            raise ConfigurationError(
                f"{site} cannot be read: {error}",
                expected="an XML file of Hadoop",
                hint="correct it or HADOOP_CONF_DIR",
            ) from error
        properties = {entry.findtext("name", "").strip(): entry.findtext("value", "").strip() for entry in entries}
    conf = environment.get("SPARK_CONF_DIR") or os.path.join(environment.get("SPARK_HOME", ""), "conf")
    for file in (Path(conf, _DEFAULTS), Home(environment).own_spark_settings):
        if file is not None and file.is_file():
            settings = read_properties(file.read_text(encoding="utf-8"))
            own = {name: value for name, value in settings.items() if name.startswith("spark.hadoop.")}
            properties.update((name.removeprefix("spark.hadoop."), value) for name, value in own.items())
    return s3_settings_of(properties)


def default_spark_settings() -> dict[str, str]:
    """The settings of the ``spark-defaults.conf`` in this package, with Delta Lake's package for the installed Spark;
    without that setting if Delta has none."""
    data, spark = pkgutil.get_data(__package__ or "", _DEFAULTS), spark_of_delta()
    settings = read_properties((data or b"").decode().replace(_SPARK, spark or _SPARK))
    return {key: value for key, value in settings.items() if _SPARK not in value}


def _parsed(settings: str) -> dict[str, str]:
    if not settings.startswith("{"):
        try:
            settings = Path(settings).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(
                f"the settings of the command line cannot be read: {error}",
                where=f"the environment variable {SETTINGS}",
                expected="JSON, or the path of a file of JSON, as the launcher sets it",
            ) from error
    parsed: dict[str, str] = json.loads(settings)
    return parsed


@cache
def data_file(package: str, name: str) -> str:
    """The path of a data file of a package. If the package is imported from an archive, as that of ``--py-files``, the
    file is copied to a temporary directory of this process: Spark's JVM cannot read it in the archive."""
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None
    path = Path(spec.origin).with_name(name)
    if path.is_file():
        return str(path)
    folder = tempfile.mkdtemp(prefix="flinkish-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    copy = Path(folder, name)
    copy.write_bytes(pkgutil.get_data(package, name) or b"")
    return str(copy)


def _existing(path: Path) -> Path | None:
    return path if path.is_file() else None


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)


#: The class by which Delta Lake is recognized.
DELTA_CLASS = "io/delta/sql/DeltaSparkSessionExtension.class"

#: The folders of a SPARK_HOME in which Spark's scripts and its JVM look for files.
_PARTS = ("bin", "conf", "data", "jars", "sbin")


def spark_home(environment: Mapping[str, str]) -> str:
    """The folder that SPARK_HOME names, else that of the installed PySpark; empty if there is neither."""
    return environment.get("SPARK_HOME") or _installed()


def home_without_zip(cache: Path, environment: Mapping[str, str]) -> str:
    """A folder below ``cache`` with links to the installed PySpark, without its zip; it is made if it does not exist.
    If the environment sets SPARK_HOME, PySpark is not installed, or the links cannot be made, the folder of
    `spark_home`.

    PySpark as installed by pip contains itself a second time in ``python/lib/pyspark.zip``. Spark puts that zip first
    on the path of each Python process that it starts, half a dozen of them until the first records are read. Python
    compiles what it imports from a zip again in each process, which takes 0.35 s each time. So a driver whose Python
    processes all run in its own environment gets a folder with links to the same Spark, without that zip: its processes
    import the installed PySpark.
    """
    home = _installed()
    if environment.get("SPARK_HOME") or not home:
        return spark_home(environment)
    links = cache / f"spark-{hashlib.sha256(home.encode()).hexdigest()[:16]}"
    try:
        links.mkdir(parents=True, exist_ok=True)
        for part in _PARTS:
            if os.path.exists(os.path.join(home, part)):
                # two drivers may start at once
                with suppress(FileExistsError):
                    os.symlink(os.path.join(home, part), links / part)
    except OSError:
        return home
    return str(links)


def settings_of_platform(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of Spark's own ``spark-defaults.conf``, which a platform writes."""
    folder = environment.get("SPARK_CONF_DIR") or os.path.join(spark_home(environment), "conf")
    file = Path(folder, "spark-defaults.conf")
    return read_properties(file.read_text()) if file.is_file() else {}


def is_shipped_with_delta(environment: Mapping[str, str]) -> bool:
    """Whether a platform has put Delta Lake among Spark's own jars."""
    return any(Path(spark_home(environment), "jars").glob("delta-spark*.jar"))


def holds_delta(entry: str) -> bool:
    """Whether an entry of a class path or of a list of jars holds Delta Lake: a jar, or a folder of jars (``/jars/*``).
    A jar on another machine's storage is known by its name."""
    path = Path(entry.removeprefix("file:").removeprefix("local:"))
    if path.name == "*":
        return any(map(holds_delta, map(str, path.parent.glob("delta-spark*.jar"))))
    try:
        with zipfile.ZipFile(path) as jar:
            return DELTA_CLASS in jar.namelist()
    except (OSError, zipfile.BadZipFile):
        return path.name.startswith("delta-spark")


def _installed() -> str:
    spec = find_spec("pyspark")
    return os.path.dirname(spec.origin) if spec is not None and spec.origin is not None else ""
