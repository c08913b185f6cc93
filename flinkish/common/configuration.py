"""Configuration: a map of strings, which ConfigOptions read as typed values.

Rule upheld here: every value has a textual form (also one that was set as a number: :meth:`Configuration.to_dict`),
which :meth:`Configuration.get` reads as the option's type. :meth:`Configuration.validate` refuses keys that nothing
reads, because a misspelt key that is silently ignored is a setting that is lost; of one in a namespace of the program's
own, which only the program can read, it warns.
"""

from __future__ import annotations

import base64
import builtins
import copy
import difflib
import re
from collections.abc import Mapping, MutableMapping
from typing import Any, NoReturn, TypeVar

from flinkish.common.config_options import ConfigOption, ConfigOptions, format_value
from flinkish.common.no_effect import no_java_object, warn_without_effect
from flinkish.common.units import parse_list
from flinkish.errors import HIDDEN, ConfigurationError

__all__ = ["Configuration"]

T = TypeVar("T")

#: Keys that begin with this are Spark's, which defines and reads them.
_SPARK = "spark."

#: The types of values as they were set; `Configuration.add_all_to_dict` returns them unchanged, as PyFlink's does.
_Value = str | int | float | bool | bytearray


class Configuration:
    """Key/value pairs of a job or of the cluster.

    >>> from flinkish.common.options import core
    >>> configuration = Configuration().set_string("parallelism.default", "4")
    >>> configuration.get(core.PARALLELISM)
    4
    """

    def __init__(self, other: Configuration | None = None, j_configuration: JavaConfiguration | None = None) -> None:
        """A copy of ``other``; or the very configuration of an environment, whose ``j_configuration``
        `flinkish.util.java_utils.get_j_env_configuration` gives."""
        self._values: dict[str, _Value] = dict(other._values) if other is not None else {}
        if j_configuration is not None:
            self._values = j_configuration.configuration._values

    @classmethod
    def from_dict(cls, map: Mapping[str, Any]) -> Configuration:
        """A configuration with the entries of a dictionary; values other than strings get their textual form."""
        configuration = cls()
        for key, value in map.items():
            configuration._values[key] = format_value(value)
        return configuration

    # --- typed access -------------------------------------------------------------------------------------------

    def get(self, option: ConfigOption[T]) -> T:
        """The value of an option, or its default.

        A key that was renamed is found under its former names too; the present name wins.

        Raises:
            ConfigurationError: the stored text cannot be read as the option's type.
        """
        for key in (option.key, *option.deprecated_keys):
            if key in self._values:
                return option.parse(_text(self._values[key]))
        return copy.copy(option.default)  # the caller may change a list or a dictionary

    def set(self, option: ConfigOption[Any], value: Any) -> Configuration:
        """Set an option to a typed value; former names of the key are removed.

        Raises:
            ConfigurationError: the value cannot be read back as the option's type.
        """
        text = format_value(value)
        option.parse(text)
        for key in option.deprecated_keys:
            self._values.pop(key, None)
        self._values[option.key] = text
        return self

    def contains(self, option: ConfigOption[Any]) -> bool:
        return any(key in self._values for key in (option.key, *option.deprecated_keys))

    # --- PyFlink's access by key --------------------------------------------------------------------------------

    def get_string(self, key: str, default_value: str) -> str:
        text = self._text(key)
        return default_value if text is None else text

    def set_string(self, key: str, value: str) -> Configuration:
        if not isinstance(value, str):
            raise ConfigurationError(
                f"the value of the configuration key '{key}' is a {type(value).__name__}",
                where="Configuration.set_string",
                expected="a str",
                hint="use set_integer, set_boolean or set_float, or convert it first",
            )
        self._values[key] = value
        return self

    def get_integer(self, key: str, default_value: int) -> int:
        text = self._text(key)
        return default_value if text is None else ConfigOptions.key(key).long_type().default_value(0).parse(text)

    def set_integer(self, key: str, value: int) -> Configuration:
        self._values[key] = int(value)
        return self

    def get_boolean(self, key: str, default_value: bool) -> bool:
        text = self._text(key)
        if text is None:
            return default_value
        return ConfigOptions.key(key).boolean_type().default_value(False).parse(text)

    def set_boolean(self, key: str, value: bool) -> Configuration:
        self._values[key] = bool(value)
        return self

    def get_float(self, key: str, default_value: float) -> float:
        text = self._text(key)
        if text is None:
            return float(default_value)
        return ConfigOptions.key(key).double_type().default_value(0.0).parse(text)

    def set_float(self, key: str, value: float) -> Configuration:
        self._values[key] = float(value)
        return self

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        text = self._text(key)
        return bytearray(default_value) if text is None else bytearray(base64.b64decode(text))

    def set_bytearray(self, key: str, value: bytearray) -> Configuration:
        """Set a value of bytes; its textual form (see `to_dict`) is base64."""
        self._values[key] = bytearray(value)
        return self

    # --- the whole map ------------------------------------------------------------------------------------------

    @staticmethod
    def parse_list_value(value: str | None) -> list[str]:
        """The items of a value such as ``"a;b"`` or ``"[a, b]"``; none of None, as in PyFlink."""
        return [] if value is None else parse_list(value)

    @staticmethod
    def parse_jars_value(value: str, jvm: object) -> NoReturn:
        """Raises UnsupportedOperationError: ``jvm`` is a gateway to Java. See `parse_list_value`."""
        no_java_object("parse_jars_value()")

    def key_set(self) -> builtins.set[str]:
        return set(self._values)

    def contains_key(self, key: str) -> bool:
        return key in self._values

    def remove_config(self, key: str) -> bool:
        """Remove a key; True if it was there."""
        return self._values.pop(key, None) is not None

    def add_all_to_dict(self, target_dict: MutableMapping[str, Any]) -> None:
        """Add the values as they were set, as PyFlink does: a number stays a number (unlike in `to_dict`)."""
        target_dict.update(self._values)

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        """Add all entries of ``other``, with ``prefix`` in front of each key; they replace entries of the same keys."""
        self._values.update({(prefix or "") + key: value for key, value in other._values.items()})
        return self

    def to_dict(self) -> dict[str, str]:
        """The textual forms of all values, by key.

        >>> Configuration().set_integer("a", 1).set_boolean("b", True).to_dict()
        {'a': '1', 'b': 'true'}
        """
        return {key: _text(value) for key, value in self._values.items()}

    def _text(self, key: str) -> str | None:
        value = self._values.get(key)
        return None if value is None else _text(value)

    def validate(self) -> None:
        """Check that each key is one of flinkish, Flink or Spark, and that the values of flinkish's keys can be read.
        Warn once of a key that looks like none of theirs (``my.company.key``), which PyFlink ignores.

        Raises:
            ConfigurationError: for all faulty keys at once, with the most similar known key for unknown ones.
        """
        from flinkish.common import options

        faults: list[ConfigurationError] = []
        for key in sorted(self._values):
            option = options.lookup(key)
            if option is not None:
                try:
                    option.parse(_text(self._values[key]))
                except ConfigurationError as error:
                    faults.append(error)
            elif key.startswith(_SPARK) or options.is_known(key):
                continue
            elif options.is_of_program(key):
                warn_without_effect(
                    f"the configuration key '{key}'",
                    "neither flinkish nor Flink nor Spark has it; the program itself can read it",
                )
            else:
                faults.append(_unknown(key, options.known_keys()))
        if len(faults) == 1:
            raise faults[0]
        if faults:
            raise ConfigurationError("; ".join(map(str, faults)), where=f"configuration, {len(faults)} faulty keys")

    def without_effect(self) -> dict[str, str]:
        """The keys that are set to other than their default but have no effect in flinkish, each with the reason.

        >>> Configuration().set_string("jobmanager.scheduler", "Adaptive").without_effect()
        {'jobmanager.scheduler': 'Spark schedules'}
        """
        from flinkish.common import options

        found = options.without_effect(self._values)
        return {key: why for key, why in found.items() if not self._is_default(options.lookup(key))}

    def _is_default(self, option: ConfigOption[Any] | None) -> bool:
        return option is not None and self.get(option) == option.default

    def __copy__(self) -> Configuration:
        return Configuration(self)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Configuration:
        return Configuration(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(frozenset(self.to_dict().items()))

    def __str__(self) -> str:
        """The entries in Flink's notation, with passwords and other secrets masked: ``{k1=v1, k2=1}``."""
        return "{" + ", ".join(f"{key}={value}" for key, value in self._shown().items()) + "}"

    def __repr__(self) -> str:
        return f"Configuration({self._shown()})"

    def _shown(self) -> dict[str, str]:
        return redacted(self.to_dict())


class JavaConfiguration:
    """The configuration of an environment under the names of Java's methods, as programs of PyFlink reach it:
    ``get_j_env_configuration(env._j_stream_execution_environment).setString(key, value)``. A method that
    `Configuration` does not have, as ``set_string`` and so on, raises UnsupportedOperationError."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration

    def __getattr__(self, name: str) -> Any:
        method = re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)
        if name.startswith("_"):
            raise AttributeError(name)
        if not hasattr(self.configuration, method):
            no_java_object(f"the method {name} of Java's Configuration")
        return getattr(self.configuration, method)


def redacted(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings as they may be shown (`ConfigOption.shown`): values of keys that name secrets, and secrets within
    values, are masked; and those of keys that the setting ``spark.redaction.regex`` finds, as Spark does."""
    from flinkish.common.options import lookup

    try:
        hides = re.compile(settings.get("spark.redaction.regex") or "(?!)").search
    except re.error:
        hides = re.compile("").search  # a regular expression that Java alone can read: nobody knows what it hides
    options = {key: lookup(key) or ConfigOptions.key(key).string_type().no_default_value() for key in settings}
    return {key: HIDDEN if hides(key) else option.shown(settings[key]) for key, option in options.items()}


def _text(value: _Value) -> str:
    if isinstance(value, bytearray):
        return base64.b64encode(bytes(value)).decode("ascii")
    return format_value(value)


def _unknown(key: str, known: list[str]) -> ConfigurationError:
    similar = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    return ConfigurationError(
        f"unknown configuration key '{key}'",
        where="configuration",
        expected="a key of flinkish.common.options or of Flink, or one that begins with " + _SPARK,
        hint=f"did you mean '{similar[0]}'?" if similar else "remove it or correct its spelling",
    )
