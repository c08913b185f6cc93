"""``docs/configuration.md``: every configuration key, its type, its default and what it does.

Rule upheld here: the page is made of the declared options (`flinkish.common.options`) alone, so it cannot say anything
else than what a program, a file and an error message say. ``python -m tests.support.configuration_keys`` writes it;
``tests/unit/common/test_configuration_page.py`` fails while it is out of date.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from flinkish.common.config_options import ConfigOption
from flinkish.common.options import cluster, groups, loggers

COMMAND = "python -m tests.support.configuration_keys"
PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"

#: The theme of a group of options -> the heading of its table, in the order of the page.
_HEADINGS = {
    "flinkish": "flinkish's own keys",
    "core": "Parallelism and the pipeline",
    "execution": "How a job is run and what it starts from",
    "checkpointing": "Checkpoints and savepoints",
    "restart": "Restarts after failures",
    "state": "State backend",
    "tables": "Queries of tables",
    "cluster": "Workers",
    "memory": "Memory of a TaskManager",
    "rest": "REST API and Web UI",
    "session": "Session mode",
    "python": "Python and files of the program",
    "loggers": "Log levels",
}

_HEAD = f"""# Configuration keys

Flink's keys, and some of flinkish's own. A key can be set in a file, on the command line and in the program; each
overrides the one before:

* `conf/flinkish.yaml` in the directory that `FLINKISH_HOME` names, or the file that `FLINKISH_CONF` names: one
  `key: value` a line (nested YAML with the extra `yaml`).
* `flinkish run -D KEY=VALUE`.
* `Configuration().set_string(KEY, VALUE)`, given to `StreamExecutionEnvironment.get_execution_environment` or to
  `env.configure`, and the environment's setters.

Keys that begin with `spark.` go to the Spark session that a job makes for itself. A value that cannot be read is an
error, and so is a key that looks like one of flinkish or Flink but is none; the message names the key and what was
expected. A key in a namespace of the program's own (`my.company.key`) is one warning.

| type | values |
| --- | --- |
| duration | `200 ms`, `10 s`, `1 min`, `2 h`, `1 d`; a bare number is milliseconds |
| memory | `64mb`, `1g`; a bare number is bytes |
| list | `a;b` or `[a, b]` |
| map | `key1:value1,key2:value2` |

This page is written by `{COMMAND}` from the declared options. A test fails
while it is out of date.
"""


def page() -> str:
    """The page as it should be."""
    options = groups()
    tables = [
        f"## {heading}\n\n{_table(option for option in options[theme] if not option.no_effect)}"
        for theme, heading in _HEADINGS.items()
    ]
    return "\n".join(
        [_HEAD, *tables, _loggers(), _keys_without_effect(option for group in options.values() for option in group)]
    )


def _table(options: Iterable[ConfigOption[Any]]) -> str:
    rows = "".join(f"| {_key(option)} | {_values(option)} | {_cell(option.description)} |\n" for option in options)
    return f"| key | type, default | what it does |\n| --- | --- | --- |\n{rows}"


def _loggers() -> str:
    rows = "".join(f"| `{loggers.PREFIX}{name}` | {what} |\n" for name, what in loggers.CLASSES.items())
    return (
        f"`{loggers.PREFIX}NAME` sets the level of one logger: of the program, of a library, or one of flinkish's own, "
        f"which\nare named after classes of Flink and Kafka Streams:\n\n"
        f"| key | what the logger reports |\n| --- | --- |\n{rows}"
    )


def _key(option: ConfigOption[Any]) -> str:
    former = ", ".join(f"`{key}`" for key in option.deprecated_keys)
    return f"`{option.key}`" + (f" (also {former})" if former else "")


def _values(option: ConfigOption[Any]) -> str:
    kind = ", ".join(f"`{choice}`" for choice in option.choices) or option.kind
    if option.default in (None, {}, []):
        return kind
    return f"{kind}; `{_cell(_default(option))}`"


def _default(option: ConfigOption[Any]) -> str:
    """The default as a user would write it, in the largest unit that fits."""
    if option.kind == "memory":
        return _in_units(option.default, ((1024**2, "mb"), (1024, "kb"), (1, "b")))
    if option.kind == "duration" and option.default.to_millis():
        units = ((86_400_000, " d"), (3_600_000, " h"), (60_000, " min"), (1_000, " s"), (1, " ms"))
        return _in_units(option.default.to_millis(), units)
    return option.format(option.default)


def _in_units(amount: int, units: tuple[tuple[int, str], ...]) -> str:
    return next(f"{amount // size}{unit}" for size, unit in units if amount % size == 0)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _keys_without_effect(options: Iterable[ConfigOption[Any]]) -> str:
    reasons: dict[str, list[str]] = {}
    for key, reason in _inert(options):
        reasons.setdefault(reason, []).append(f"`{key}*`" if key.endswith(".") else f"`{key}`")
    lines = (
        f"* {reason}: {', '.join(keys)}\n" for reason, keys in sorted(reasons.items(), key=lambda one: -len(one[1]))
    )
    return (
        "## Keys of Flink without effect\n\nPrograms and files may set them. One warning at the submission of a job "
        "names those that are set, with the\nreason; a `*` stands for any further characters.\n\n" + "".join(lines)
    )


def _inert(options: Iterable[ConfigOption[Any]]) -> Iterator[tuple[str, str]]:
    for option in options:
        if option.no_effect:
            yield from ((key, option.no_effect) for key in (option.key, *option.deprecated_keys))
    # `$internal.` and the like are set by Flink itself and by nobody else
    yield from ((key, reason) for key, reason in cluster.UNREAD.items() if not key.startswith("$"))


if __name__ == "__main__":
    PAGE.write_text(page())
