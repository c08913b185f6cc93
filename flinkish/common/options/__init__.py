"""The registry of all configuration keys that flinkish knows, grouped per theme.

Rule upheld here: a key is declared once, in the module of its theme; code reads it through that constant and never
by a literal. ``lookup`` finds an option by its present or a former name.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from flinkish.common.config_options import ConfigOption
from flinkish.common.options import (
    checkpointing,
    cluster,
    core,
    execution,
    flinkish,
    loggers,
    memory,
    python,
    rest,
    restart,
    session,
    state,
    tables,
)

#: How similar to a key that has an effect another one must be to be taken for a misspelt one (`difflib`, from 0 to 1);
#: the same for a key whose beginning is nobody's, and for that beginning.
_MISSPELT, _MISSPELT_KEY, _MISSPELT_BEGINNING = 0.93, 0.8, 0.85

_THEMES: tuple[ModuleType, ...] = (
    core,
    execution,
    checkpointing,
    restart,
    state,
    cluster,
    memory,
    python,
    rest,
    session,
    tables,
    flinkish,
    loggers,
)


def groups() -> dict[str, list[ConfigOption[Any]]]:
    """The options of each theme, by its name, in the order of their declaration (for documentation)."""
    return {
        theme.__name__.rpartition(".")[2]: [
            option for option in vars(theme).values() if isinstance(option, ConfigOption)
        ]
        for theme in _THEMES
    }


def _registry() -> dict[str, ConfigOption[Any]]:
    registry: dict[str, ConfigOption[Any]] = dict(loggers.OF_CLASSES)
    for options in groups().values():
        for option in options:
            for key in (option.key, *option.deprecated_keys):
                if key in registry:
                    raise ValueError(f"the configuration key '{key}' is declared twice")
                registry[key] = option
    return registry


_REGISTRY = _registry()


def lookup(key: str) -> ConfigOption[Any] | None:
    """The option that has this key as its present or a former name; None if there is none.

    >>> lookup("state.backend").key
    'state.backend.type'
    """
    return _REGISTRY.get(key) or loggers.lookup(key)


def without_effect(keys: Iterable[str]) -> dict[str, str]:
    """The keys among these that have no effect in flinkish, each with the reason.

    >>> without_effect(["jobmanager.scheduler", "rest.port", "parallelism.default"])
    {'jobmanager.scheduler': 'Spark schedules'}
    """
    options = {key: lookup(key) for key in sorted(keys)}
    reasons = ((key, _unread(key) if option is None else option.no_effect) for key, option in options.items())
    return {key: why for key, why in reasons if why}


def is_known(key: str) -> bool:
    """Whether a key is one of flinkish or of Flink. A key of a family that flinkish does not read is none if it looks
    like a misspelt one that has an effect.

    >>> is_known("taskmanager.memory.process.size"), is_known("taskmanager.memory.manged.size")
    (True, False)
    """
    if lookup(key) is not None or key in cluster.UNREAD:
        return True
    effective = [option.key for option in _REGISTRY.values() if not option.no_effect]
    return bool(_unread(key)) and not difflib.get_close_matches(key, effective, 1, _MISSPELT)


def is_of_program(key: str) -> bool:
    """Whether an unknown key is one of a program's own: neither the key nor its beginning, up to the first dot, looks
    like one that flinkish, Flink or Spark has.

    >>> is_of_program("my.company.key"), is_of_program("paralelism.default"), is_of_program("execution.no-such-key")
    (True, False, False)
    """
    beginnings = {known.partition(".")[0] for known in (*_REGISTRY, *cluster.UNREAD, "spark.")}
    return not (
        difflib.get_close_matches(key.partition(".")[0], beginnings, 1, _MISSPELT_BEGINNING)
        or difflib.get_close_matches(key, _REGISTRY, 1, _MISSPELT_KEY)
    )


def _unread(key: str) -> str:
    """Why a key has no effect that is not declared as an option; "" if nothing is known of it."""
    beginnings = (key[: place + 1] for place in range(len(key) - 1, 0, -1) if key[place] == ".")
    return next((cluster.UNREAD[name] for name in (key, *beginnings) if name in cluster.UNREAD), "")


def known_keys() -> list[str]:
    """The present names of all keys, sorted."""
    return sorted({option.key for option in _REGISTRY.values()})
