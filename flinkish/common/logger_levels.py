"""Sets the levels of Python's loggers from a configuration, in the driver and in Python workers alike.

Rule upheld here: what was set for one job is taken back when another configuration is applied, because a worker and a
notebook serve many jobs; loggers that no configuration names are never touched.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping

from flinkish.common.options import loggers

__all__ = ["TRACE", "configure_loggers", "levels_of"]

#: The level below DEBUG: ``logger.log(TRACE, ...)``.
TRACE = 5
_OFF = logging.CRITICAL + 10

_LEVELS = {
    "ALL": 1,  # 0 would mean the level of the parent logger
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

#: logger -> its level before it was set here
_before: dict[str, int] = {}
_handler: logging.Handler | None = None


def levels_of(configuration: Mapping[str, str]) -> dict[str, int]:
    """The levels of the Python loggers that a configuration names; the root logger is ``""``.

    Raises:
        ConfigurationError: a level does not exist.

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
        # py4j logs each call to Spark's JVM; a program that wants to see this names that logger
        found.setdefault("py4j", logging.WARNING)
    return found


def configure_loggers(configuration: Mapping[str, str]) -> None:
    """Set the loggers that a configuration names, and restore the levels of those that it no longer names.

    Where there is no handler, log records go to the standard error: that of the driver, or the log of an executor.

    Raises:
        ConfigurationError: a level does not exist; nothing was changed then.
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
    """Writes to ``sys.stderr`` as it is at that time, since notebooks and tests replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, unless it is sent to the driver, which shares this standard error. A record that cannot be
        written does not fail the job: `logging` reports the error."""
        if getattr(record, "travels", False):
            return
        try:
            # in one call, since several workers write to the standard error of one executor
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)
