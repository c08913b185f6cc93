"""What an installation has of its own: the directory FLINKISH_HOME with ``conf/``, above the defaults of the package.

Rule: without FLINKISH_HOME the defaults hold, however a program is started. ``spark-submit.sh`` sets it to its
checkout.
"""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Mapping
from pathlib import Path

from flinkish.launch.options import read_properties

_DEFAULTS = "spark-defaults.conf"
_LOGGING = "log4j2.properties"


class Home:
    """``environment``: where FLINKISH_HOME and FLINKISH_CONF are looked up."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        home = environment.get("FLINKISH_HOME")
        self._conf = Path(home, "conf") if home else None
        self._configuration = environment.get("FLINKISH_CONF")
        # a directory that belongs to someone else is used as it is
        writable = bool(home) and os.access(str(home), os.W_OK)
        #: Of what is made once for many starts; Spark's log lies there, too.
        self.cache = Path(str(home), ".cache") if writable else Path.home() / ".cache" / "flinkish"

    @property
    def configuration_file(self) -> str | None:
        """The file with the configuration of all programs, if there is one."""
        return self._configuration or _path(self._own("flinkish.yaml"))

    @property
    def own_spark_settings(self) -> Path | None:
        """``conf/spark-defaults.conf``, if there is one."""
        return self._own(_DEFAULTS)

    @property
    def logging_file(self) -> str | None:
        """What Spark's JVM may say on the console. None if the package lies in an archive, which log4j cannot read."""
        return _path(self._own(_LOGGING) or _existing(Path(__file__).with_name(_LOGGING)))

    @property
    def spark_log(self) -> Path:
        """Where Spark's warnings and errors go."""
        return self.cache / "spark.log"

    def _own(self, name: str) -> Path | None:
        return _existing(self._conf / name) if self._conf else None


def default_spark_settings() -> dict[str, str]:
    """The settings that the package carries."""
    data = pkgutil.get_data(__package__ or "", _DEFAULTS)
    return read_properties((data or b"").decode())


def _existing(path: Path) -> Path | None:
    return path if path.is_file() else None


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)
