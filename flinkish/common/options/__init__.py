"""The registry of all configuration keys that flinkish knows, grouped per theme.

Rule upheld here: a key is declared once, in the module of its theme; code reads it through that constant and never
by a literal. ``lookup`` finds an option by its present or a former name.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

from flinkish.common.config_options import ConfigOption
from flinkish.common.options import checkpointing, cluster, core, execution, flinkish, loggers, python, restart, state

#: Keys with these prefixes that are not declared here configure Flink's own cluster; nothing in flinkish reads them.
CLUSTER_PREFIXES = ("metrics.", "rest.", "jobmanager.", "taskmanager.", "security.")

_THEMES: tuple[ModuleType, ...] = (core, execution, checkpointing, restart, state, cluster, python, flinkish, loggers)


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

    >>> without_effect(["rest.port", "parallelism.default"])
    {'rest.port': 'there is no REST endpoint'}
    """
    found: dict[str, str] = {}
    for key in sorted(keys):
        option = lookup(key)
        if option is not None and option.no_effect:
            found[key] = option.no_effect
        elif option is None and key.startswith(CLUSTER_PREFIXES):
            found[key] = "Spark takes the place of Flink's cluster"
    return found


def known_keys() -> list[str]:
    """The present names of all keys, sorted."""
    return sorted({option.key for option in _REGISTRY.values()})
