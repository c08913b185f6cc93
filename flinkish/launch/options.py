"""Parses the command line ``JOB.py [job options] [-- spark options]``, and builds Spark's part of it again.

Rule: the functions are pure. Everything that the user wrote after ``--`` reaches Spark unchanged, after flinkish's own
options, so that it wins (Spark takes the last one). Only comma-separated lists are merged, because Spark would take the
last list alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# spark-submit's options that take no value
_FLAGS = frozenset({"--help", "-h", "--verbose", "-v", "--version", "--supervise", "--load-spark-defaults"})


@dataclass(frozen=True)
class CommandLine:
    """A parsed command line: ``job`` and ``job_options`` as the program sees them in ``sys.argv``, and ``spark``, the
    options after the first ``--``."""

    job: str
    job_options: tuple[str, ...]
    spark: SparkOptions

    @classmethod
    def parse(cls, argv: Sequence[str]) -> CommandLine:
        """Parse a command line of at least the job's path.

        >>> CommandLine.parse(["a.py", "--x", "1", "--", "--master", "local[2]"]).job_options
        ('--x', '1')
        """
        job, *rest = argv
        split = rest.index("--") if "--" in rest else len(rest)
        return cls(job, tuple(rest[:split]), SparkOptions.parse(rest[split + 1 :]))


@dataclass(frozen=True)
class SparkOptions:
    """The options of a call of spark-submit, in their order: ``(name, value)``, or ``(name, None)`` for a flag."""

    items: tuple[tuple[str, str | None], ...]

    @classmethod
    def parse(cls, tokens: Sequence[str]) -> SparkOptions:
        """Parse options as spark-submit does; ``-c`` is written as ``--conf``.

        >>> SparkOptions.parse(["--master", "local[2]", "--conf=a=b", "--verbose"]).items
        (('--master', 'local[2]'), ('--conf', 'a=b'), ('--verbose', None))
        """
        items: list[tuple[str, str | None]] = []
        rest = iter(tokens)
        for token in rest:
            name, equals, value = token.partition("=")
            if token in _FLAGS or not token.startswith("-"):
                items.append((token, None))
            elif equals and name.startswith("--"):
                items.append((name, value))
            else:
                items.append(("--conf" if token == "-c" else token, next(rest, None)))
        return cls(tuple(items))

    def value(self, name: str) -> str | None:
        """The value of the last option with this name, which is the one that Spark takes; None if there is none."""
        values = [value for option, value in self.items if option == name]
        return values[-1] if values else None

    def conf(self, key: str) -> str | None:
        """The value of the last ``--conf key=value`` with this key; None if there is none."""
        settings = (value.partition("=") for option, value in self.items if option == "--conf" and value)
        values = [value for name, _, value in settings if name.strip() == key]
        return values[-1] if values else None

    def either(self, name: str, key: str) -> str | None:
        """The value that Spark takes for an option that is also a configuration key: the option wins over the key."""
        value = self.value(name)
        return self.conf(key) if value is None else value

    def without(self, *names: str) -> SparkOptions:
        """The options without those of these names."""
        return SparkOptions(tuple(item for item in self.items if item[0] not in names))

    def without_conf(self, key: str) -> SparkOptions:
        """The options without each ``--conf key=value`` with this key."""
        return SparkOptions(
            tuple(
                (name, value)
                for name, value in self.items
                if name != "--conf" or value is None or value.partition("=")[0].strip() != key
            )
        )

    def only(self, *names: str) -> SparkOptions:
        """The options of these names alone."""
        return SparkOptions(tuple(item for item in self.items if item[0] in names))

    def tokens(self) -> list[str]:
        """The options as the arguments of a command line."""
        return [token for item in self.items for token in item if token is not None]


def comma_list(*parts: str | Iterable[str] | None) -> str:
    """Join comma-separated strings and iterables of strings to one comma-separated string, each entry once, in order.

    >>> comma_list("a,b", None, ["b", "c"])
    'a,b,c'
    """
    entries: dict[str, None] = {}
    for part in parts:
        for entry in part.split(",") if isinstance(part, str) else part or ():
            if entry.strip():
                entries[entry.strip()] = None
    return ",".join(entries)


def read_properties(text: str) -> dict[str, str]:
    """The settings in the text of a ``spark-defaults.conf``: one ``key value`` or ``key=value`` per line; lines that
    begin with ``#`` are comments.

    >>> read_properties("# a comment\\nspark.master   local[*]\\n")
    {'spark.master': 'local[*]'}
    """
    lines = (line.strip() for line in text.split("\n"))
    pairs = (re.split(r"\s*[=\s]\s*", line, maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {pair[0]: pair[1] if len(pair) == 2 else "" for pair in pairs}


def as_properties(settings: Mapping[str, str]) -> str:
    """Settings as the text of a properties file of Java, which Spark and its launcher read back unchanged.

    >>> as_properties({"spark.a b": "c:\\n=d"})
    'spark.a\\\\ b=c:\\\\n=d\\n'
    """
    return "".join(f"{_escaped(key, ' =:#!')}={_escaped(value)}\n" for key, value in settings.items())


def _escaped(text: str, special: str = "") -> str:
    named = {
        "\\": "\\\\",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\f": "\\f",
        **{each: f"\\{each}" for each in special},
    }
    shown = "".join(named.get(each, each) for each in text)
    if text.startswith(" ") and not special:
        shown = "\\" + shown  # otherwise it would belong to what separates key and value
    units = shown.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[place : place + 2], "big") for place in range(0, len(units), 2))
    return "".join(chr(code) if 32 <= code < 127 else f"\\u{code:04x}" for code in codes)
