"""Sets the levels of Python's loggers from a configuration, alike in the driver and in Python workers.

Rule upheld here: what was set for one job is taken back when another configuration is applied, because a worker and a
notebook serve many jobs; loggers that no configuration names are never touched.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping

from flinkish.common.options import loggers

__all__ = ["TRACE", "configure_loggers", "levels_of"]

#: Finer than DEBUG: ``logger.log(TRACE, ...)``.
TRACE = 5
_OFF = logging.CRITICAL + 10

_LEVELS = {
    "ALL": 1,  # 0 would mean the level of the logger above
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": _OFF,
}

_ROOT = ""
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

#: logger -> the level that it had before it was set here
_before: dict[str, int] = {}
_handler: logging.Handler | None = None


def levels_of(configuration: Mapping[str, str]) -> dict[str, int]:
    """Python's loggers that a configuration names, with their levels; the root logger is ``""``.

    Raises:
        ConfigurationError: a level that does not exist.

    >>> levels_of({"rootLogger": "INFO", "logger.TaskManager": "all", "parallelism.default": "2"})
    {'': 20, 'flinkish.TaskManager': 1, 'py4j': 30}
    """
    found: dict[str, int] = {}
    for key, text in configuration.items():
        if key == loggers.ROOT_LOGGER.key:
            found[_ROOT] = _LEVELS[loggers.ROOT_LOGGER.parse(text)]
        elif key.startswith(loggers.PREFIX):
            name = key.removeprefix(loggers.PREFIX)
            level = _LEVELS[loggers.logger_option(name).parse(text)]
            found[f"flinkish.{name}" if name in loggers.CLASSES else name] = level
    if found.get(_ROOT, logging.WARNING) < logging.WARNING:
        # it reports each call to Spark's JVM; whoever wants to see that names it
        found.setdefault("py4j", logging.WARNING)
    return found


def configure_loggers(configuration: Mapping[str, str]) -> None:
    """Set the loggers that a configuration names, and give all those back their level that it names no more.

    Where no handler is, what is logged goes to the standard error: to that of the driver, or to the log of an executor.

    Raises:
        ConfigurationError: a level that does not exist; then nothing is changed.
    """
    global _handler
    levels = levels_of(configuration)
    if not levels and not _before:
        return
    logging.addLevelName(TRACE, "TRACE")
    for name in _before.keys() - levels.keys():
        logging.getLogger(name).setLevel(_before.pop(name))
    for name, level in levels.items():
        logger = logging.getLogger(name)
        _before.setdefault(name, logger.level)
        logger.setLevel(level)
    root = logging.getLogger()
    if levels and all(getattr(handler, "collects_only", False) for handler in root.handlers):
        _handler = _StandardError()
        _handler.setFormatter(logging.Formatter(_FORMAT))
        root.addHandler(_handler)
    elif not levels and _handler is not None:
        root.removeHandler(_handler)
        _handler = None


class _StandardError(logging.Handler):
    """Writes to what is the standard error at that time: notebooks and tests put another in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        """One record, unless it travels to the driver, whose standard error this is. The error of one that cannot be
        written is `logging`'s to report, not the job's."""
        if getattr(record, "travels", False):
            return
        try:
            # in one piece: several workers write to the standard error of one executor
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)
