"""ConfigOption: the type, default, meaning and former names of one configuration key.

Rule upheld here: the text of a value is read in one place, :meth:`ConfigOption.parse`, so a key has the same meaning
whether it comes from the program, from ``conf/flinkish.yaml`` or from the command line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, cast

from flinkish.common.time import Duration
from flinkish.common.units import (
    format_list,
    format_map,
    parse_boolean,
    parse_duration,
    parse_list,
    parse_map,
    parse_memory,
)
from flinkish.errors import HIDDEN, ConfigurationError, is_secret, redact

__all__ = ["ConfigOption", "ConfigOptions"]

T = TypeVar("T")


def _integer(bits: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text.strip())
        except ValueError:
            raise ValueError("expected a whole number") from None
        if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise ValueError(f"expected a whole number of {bits} bits")
        return value

    return parse


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("expected a number") from None


_PARSERS: dict[str, Callable[[str], Any]] = {
    "boolean": parse_boolean,
    "int": _integer(32),
    "long": _integer(64),
    "float": _number,
    "double": _number,
    "string": str,
    "duration": parse_duration,
    "memory": parse_memory,
    "list": parse_list,
    "map": parse_map,
}


@dataclass(frozen=True)
class ConfigOption(Generic[T]):
    """A configuration key. ``kind`` is one of boolean, int, long, float, double, string, duration, memory (in bytes),
    list, map.

    >>> option = ConfigOptions.key("my.interval").duration_type().default_value(Duration.of_seconds(1))
    >>> option.parse("5 s").to_millis()
    5000
    """

    key: str
    kind: str
    default: T = field(hash=False)
    description: str = ""
    deprecated_keys: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    #: the least value of a number; None: there is none
    lowest: int | None = None
    #: why the key has no effect in flinkish; empty if it has one
    no_effect: str = ""

    def with_description(self, description: str) -> ConfigOption[T]:
        return replace(self, description=description)

    def with_deprecated_keys(self, *keys: str) -> ConfigOption[T]:
        return replace(self, deprecated_keys=keys)

    def with_choices(self, *choices: str) -> ConfigOption[T]:
        """Allow only these values, in upper or lower case and with ``-`` for ``_``, as Flink reads enums."""
        return replace(self, choices=choices)

    def with_lowest(self, lowest: int) -> ConfigOption[T]:
        """Allow only numbers from this one on."""
        return replace(self, lowest=lowest)

    def without_effect(self, why: str) -> ConfigOption[T]:
        """Declare that the key has no effect: ported programs may set it, and the reason is reported when such a job is
        submitted."""
        return replace(self, no_effect=why)

    def parse(self, text: str) -> T:
        """Read a text as this option's type.

        Raises:
            ConfigurationError: the text is not of that type; the message names the key and what was expected, and
                quotes nothing of the text, which may hold a secret.
        """
        try:
            value = _PARSERS[self.kind](text)
            if self.lowest is not None and value < self.lowest:
                raise ValueError(f"expected a number from {self.lowest} on")
            return cast(T, self._choice(value) if self.choices else value)
        except ValueError as error:
            raise ConfigurationError(
                f"the value of the configuration key '{self.key}' cannot be read as {self.kind}",
                where="configuration",
                expected=str(error).removeprefix("expected "),
                hint=self.description and f"the key's meaning: {self.description}",
            ) from None

    def _choice(self, text: str) -> str:
        for choice in self.choices:
            if _folded(choice) == _folded(text):
                return choice
        raise ValueError(f"expected one of {', '.join(self.choices)}")

    def shown(self, text: str) -> str:
        """A value as it may be shown: hidden if the key names a secret; in a map, each entry by its own key.

        >>> ConfigOptions.key("parameters").map_type().no_default_value().shown("user:ann,db-token:'a b'")
        'user:ann,db-token:******'
        """
        if is_secret(self.key):
            return HIDDEN
        if self.kind != "map":
            return redact(text)
        try:
            entries = parse_map(text)
        except ValueError:
            return HIDDEN
        return format_map({key: HIDDEN if is_secret(key) else redact(value) for key, value in entries.items()})

    def format(self, value: Any) -> str:
        """The string as which a value of this option is stored."""
        return format_value(value)


def format_value(value: Any) -> str:
    """The string form of a configuration value, which its option parses."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Duration):
        return str(value)
    if isinstance(value, dict):
        return format_map(value)
    if isinstance(value, (list, tuple)):
        return format_list(value)
    return str(value)


def _folded(text: str) -> str:
    return text.strip().upper().replace("-", "_")


class ConfigOptions:
    """Builds a ConfigOption: ``ConfigOptions.key("parallelism.default").int_type().default_value(1)``."""

    @staticmethod
    def key(key: str) -> ConfigOptions.OptionBuilder:
        return ConfigOptions.OptionBuilder(key)

    class OptionBuilder:
        def __init__(self, key: str) -> None:
            self._key = key

        def boolean_type(self) -> ConfigOptions.TypedConfigOptionBuilder[bool]:
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "boolean")

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """A whole number of 32 bits: from -2,147,483,648 to 2,147,483,647."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "int")

        def long_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """A whole number of 64 bits: from -9,223,372,036,854,775,808 to 9,223,372,036,854,775,807."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "long")

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "float")

        def double_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "double")

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder[str]:
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "string")

        def duration_type(self) -> ConfigOptions.TypedConfigOptionBuilder[Duration]:
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "duration")

        def memory_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """A memory size, which is read as a number of bytes."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "memory")

        def list_type(self) -> ConfigOptions.TypedConfigOptionBuilder[list[str]]:
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "list")

        def map_type(self) -> ConfigOptions.TypedConfigOptionBuilder[dict[str, str]]:
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "map")

    class TypedConfigOptionBuilder(Generic[T]):
        def __init__(self, key: str, kind: str) -> None:
            self._key = key
            self._kind = kind

        def default_value(self, value: T) -> ConfigOption[T]:
            return ConfigOption(self._key, self._kind, value)

        def no_default_value(self) -> ConfigOption[T | None]:
            return ConfigOption[T | None](self._key, self._kind, None)
