"""No text can make a regular expression take longer than in proportion to its length: records, messages, paths and
stored texts are written by others (docs/security.md).

The patterns are found in the source, so that a new one is tested without being listed. Of each, hostile texts are made
by a walk over its parts: what comes before a repetition, then the repetition many times, then something that does not
fit; and all of this many times, for searches that begin anew at each place.
"""

from __future__ import annotations

import ast
import importlib
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import pytest
from pyspark.errors import NumberFormatException

from flinkish.common.typeinfo import Types
from flinkish.errors import FlinkishError, OperationError, redact
from flinkish.formats.csv import CsvRowDeserializationSchema
from flinkish.formats.json import JsonRowDeserializationSchema
from flinkish.spark.failures import translate
from tests.support.sources import name_of, nodes_of, trees

try:
    from re import _parser as parser
except ImportError:  # Python 3.10
    import sre_parse as parser  # type: ignore[no-redef]

METHODS = ("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer")

#: Places where a pattern is made of values that only a run has -> why no text of others can make it slow, or what tests
#: it. Those that take it from a table, or from constants of their module, are none of them.
MADE_AT_RUN_TIME = {
    "common/configuration.py redacted": "the setting of the program, over keys of its own",
    "rest/route.py _pattern": "paths of our own routes",
    "storage/paths.py NameForm.checked": "each NameForm is found in the source",
    "storage/stored_file.py StoredFile.parts_of": "names of files have 255 bytes",
    "connectors/paged_source.py _page_info": "the id of a split, escaped, and a digest",
    "connectors/file_system/listing.py _children": "paths of the program; names of files have 255 bytes",
    "connectors/kafka/client.py Cluster.partitions": "the program's pattern of topics; their names have 249 characters",
    "connectors/kafka/settings.py KafkaSourceSettings.names": "the same",
    "connectors/kafka/source.py KafkaSourceBuilder.set_topic_pattern": "the same, which is only compiled",
    "connectors/kafka/properties.py _login": "a name, in the program's own properties",
    "connectors/jdbc/statement.py insert_pattern": "SQL of the program",
    "connectors/jdbc/database.py parse_url": "the URL of the program",
    "formats/_csv_values.py CsvDialect.text_field": "a set of characters",
    "formats/_csv_values.py CsvDialect.records": "tested through the formats, below",
    "formats/_csv_values.py _field_pattern": "the same",
    "formats/_csv_values.py _unescaper": "the same",
    "formats/_csv_values.py refusing": "a set of characters",
    "table/sql_expressions.py _interval": "one of the module's own patterns, by the unit",
    "table/functions_text.py regex": "a regular expression of the program's SQL",
    "table/functions_text.py _similar": "a pattern of the program's SQL",
    "table/functions_time.py _regex": "numbers of few digits, names, and texts of the program's SQL",
}


#: Functions that get their pattern as an argument, which is one of the constants of the module.
GIVEN_CONSTANTS = {"flinkish.spark.failures _damage.begins"}

#: Modules and patterns that see no text but that of the program and of its installation -> what they see.
OF_THE_PROGRAM = {
    "connectors/jdbc/statement.py": "SQL of the program",
    "connectors/jdbc/mysql.py MysqlDatabase.write": "SQL of the program",
    "connectors/jdbc/mysql.py MysqlDialect": "SQL of the program",
    "connectors/jdbc/mysql.py _TOKEN": "SQL of the program",
    "connectors/kafka/properties.py _PROVIDED": "properties of the program",
    "connectors/file_system/sink_options.py": "the pattern of the names of folders",
    "formats/json.py _BEYOND_JSON": "the JSON schema of a format",
    "state/console.py": "SQL that the user of the console types",
    "launch/packages.py _JAR": "names of jars of the installation",
    "launch/spark_version.py": "names of jars and modules of the installation",
}


class Found(NamedTuple):
    """A pattern, and the method by which it is used."""

    where: str
    pattern: str | bytes
    flags: int
    method: str


def calls_of(tree: ast.AST, name: str = "") -> Iterator[tuple[str, ast.Call]]:
    """The calls in a module, each with the names of the classes and functions around it."""
    for child in ast.iter_child_nodes(tree):
        inner = name
        if isinstance(child, (ast.ClassDef, ast.FunctionDef)):
            inner = f"{name}.{child.name}".lstrip(".")
        if isinstance(child, ast.Call):
            yield inner, child
        yield from calls_of(child, inner)


def function_of(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "re":
        return function.attr
    return "NameForm" if isinstance(function, ast.Name) and function.id == "NameForm" else ""


def names_of(call: ast.Call, tree: ast.Module) -> set[str]:
    """The names to which the result of a call is bound."""
    return {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is call
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }


def method_of(call: ast.Call, tree: ast.Module) -> str:
    """How the result of ``re.compile`` is used: by its name in the module; a search, if nothing else is seen."""
    names = names_of(call, tree)
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names
    }
    return next((method for method in reversed(METHODS) if method in used), "search")


def tables_of(function: ast.AST) -> dict[str, tuple[str, int | None]]:
    """The variables of the loops of a function that run over a table of the module -> the name of the table, and the
    column that the variable is."""
    found: dict[str, tuple[str, int | None]] = {}
    for node in ast.walk(function):
        if isinstance(node, (ast.For, ast.comprehension)):
            tables = [part.id for part in ast.walk(node.iter) if isinstance(part, ast.Name) and part.id.isupper()]
            columns = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
            for number, column in enumerate(columns):
                if isinstance(column, ast.Name) and tables:
                    found[column.id] = tables[0], number if len(columns) > 1 else None
    return found


def from_table(module: Any, tree: ast.Module, inner: str, call: ast.Call) -> list[Found]:
    """The patterns of the table over which the loop runs in which a pattern is used; all texts of the module's own
    constants if it is the argument of a function."""
    name, method, last = call.args[0], function_of(call), inner.split(".")[-1]
    around = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == last]
    table = tables_of(around[0]).get(name.id) if isinstance(name, ast.Name) and around else None
    if table is not None:
        value = vars(module)[table[0]]
        rows = list(value.items() if isinstance(value, dict) else value)
        texts = [row if table[1] is None else row[table[1]] for row in rows]
    elif f"{module.__name__} {inner}" in GIVEN_CONSTANTS:
        constants = [value for key, value in vars(module).items() if key.isupper()]
        texts = [text for value in constants for text in (value if isinstance(value, tuple) else [value])]
    else:
        texts = []
    return [Found(module.__name__, text, re.DOTALL, method) for text in texts if isinstance(text, str)]


@cache
def patterns() -> tuple[list[Found], list[str]]:
    """The patterns in the source of flinkish, and the places where one is made at run time."""
    found, dynamic = [], []
    functions = (*METHODS, "compile", "NameForm")
    for path, tree in trees().items():
        if not any(isinstance(node, ast.Call) and function_of(node) in functions for node in nodes_of(path)):
            continue
        name = name_of(path)
        calls = [(inner, call) for inner, call in calls_of(tree) if function_of(call) in functions]
        imported = f"flinkish.{name.removesuffix('.py').replace('/', '.')}".removesuffix(".__init__")
        module = importlib.import_module(imported)
        for inner, call in calls:
            function = function_of(call)
            places = {"sub": 4, "subn": 4, "split": 3, "compile": 1}.get(function, 2)
            flags = [word.value for word in call.keywords if word.arg == "flags"] + call.args[places : places + 1]
            try:
                pattern, *given = (eval(ast.unparse(part), dict(vars(module))) for part in [call.args[0], *flags])
            except (NameError, AttributeError):
                of_constants = from_table(module, tree, inner, call)
                found += of_constants
                dynamic += [] if of_constants else [f"{name} {inner}"]
                continue
            if isinstance(pattern, re.Pattern):
                pattern, given = pattern.pattern, [pattern.flags & ~re.UNICODE]
            method = {"compile": method_of(call, tree), "NameForm": "fullmatch"}.get(function, function)
            where = f"{name} {inner or ', '.join(sorted(names_of(call, tree)))}"
            found.append(Found(where, pattern, given[0] if given else 0, method))
    return list(dict.fromkeys(found)), dynamic


#: Characters of which hostile texts are made.
PALETTE = "a1 \t\n._-/:'\"\\=,;@([<\x00"


def fits(items: list[Any], char: str) -> bool:
    """Whether a character is one of a set of a pattern."""
    negated, inside = False, False
    for kind, value in items:
        name = str(kind)
        negated = negated or name == "NEGATE"
        if name == "LITERAL":
            inside = inside or ord(char) == value
        elif name == "RANGE":
            inside = inside or value[0] <= ord(char) <= value[1]
        elif name == "CATEGORY":
            letters = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}[str(value).rpartition("_")[2]]
            inside = inside or (re.match(letters, char) is None) is ("_NOT_" in str(value))
    return inside is not negated


def sample(items: Any, prefer: str) -> str:
    """A text that these parts of a pattern match, if possible of one character."""
    made = ""
    for kind, value in items:
        name = str(kind)
        if name == "LITERAL":
            made += chr(value)
        elif name in ("IN", "NOT_LITERAL", "ANY"):
            members = {"IN": value, "NOT_LITERAL": [(parser.NEGATE, None), (parser.LITERAL, value)]}.get(name)
            made += next((char for char in (prefer, *PALETTE) if members is None or fits(members, char)), "a")
        elif name == "BRANCH":
            branches = [sample(branch, prefer) for branch in value[1]]
            made += next((branch for branch in branches if prefer in branch), branches[0])
        elif name in ("SUBPATTERN", "ATOMIC_GROUP"):
            made += sample(value[-1] if name == "SUBPATTERN" else value, prefer)
        elif name.endswith("_REPEAT"):
            made += sample(value[2], prefer) * min(value[0], 64)
    return made


def repetitions(items: Any, before: Callable[[str], str]) -> Iterator[tuple[Callable[[str], str], Any]]:
    """Each repetition in a pattern: the text before it, as a function of the preferred character, and its parts."""
    parts = list(items)
    for number, (kind, value) in enumerate(parts):
        name = str(kind)

        def front(prefer: str, number: int = number) -> str:
            return before(prefer) + sample(parts[:number], prefer)

        if name == "BRANCH":
            for branch in value[1]:
                yield from repetitions(branch, front)
        elif name in ("SUBPATTERN", "ATOMIC_GROUP", "ASSERT", "ASSERT_NOT"):
            yield from repetitions(value if name == "ATOMIC_GROUP" else value[-1], front)
        elif name.endswith("_REPEAT"):
            if value[1] > 8:
                yield front, value[2]
            yield from repetitions(value[2], front)


def seeds(pattern: str | bytes, flags: int) -> set[tuple[str, str]]:
    """Pairs of a beginning and of what is to be repeated behind it."""
    tree = parser.parse(pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern, flags)
    found = set()
    for front, body in repetitions(tree, lambda _: ""):
        for prefer in PALETTE:
            branches = [body]
            if len(body) == 1 and str(body[0][0]) in ("BRANCH", "SUBPATTERN"):
                inner = body[0][1][-1]
                nested = inner if str(body[0][0]) == "BRANCH" else [inner]
                branches += nested
                branches += [b for one in nested if len(one) == 1 and str(one[0][0]) == "BRANCH" for b in one[0][1][1]]
            found |= {(front(prefer), pump) for branch in branches if (pump := sample(branch, prefer))}
            found.add((front(prefer), prefer))
    return found


def texts(begin: str, pump: str, size: int) -> Iterator[str]:
    for end in ("\x00", ""):
        yield (begin + pump * (size // len(pump)))[:size] + end
    yield ((begin + pump) * (size // len(begin + pump) + 1))[:size] + "\x00"


class TooLong(Exception):
    """A text takes too much processor time."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Interrupts the block when it has taken so much processor time."""

    def interrupt(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, interrupt)
    # again and again: an exception within a callback of the interpreter is lost
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


#: The processor time that a text of 100 KB may take, and the same with room for a machine that is busy.
GOAL_S, LIMIT_S = 0.05, 0.25
#: Characters of the texts of the first two tries: a time that grows with the square of the length is seen in them.
SHORT, LONGER = 2_000, 20_000


def used(pattern: re.Pattern[Any], method: str, text: Any) -> float:
    """The processor time that a pattern takes for a text, in s."""
    began = time.process_time()
    with at_most(LIMIT_S * 2):
        if method in ("sub", "subn"):
            getattr(pattern, method)(text[:0], text)
        else:
            made = getattr(pattern, method)(text)
            if method == "finditer":
                list(made)
    return time.process_time() - began


def too_slow(found: Found) -> str:
    """How the text is made that takes the pattern longer than it may; "" if none is found."""
    compiled = re.compile(found.pattern, found.flags)
    coerce: Callable[[str], Any] = str
    if isinstance(found.pattern, bytes):
        coerce = lambda text: text.encode("latin-1", "replace")  # noqa: E731

    def time_of(number: int, size: int) -> float:
        return used(compiled, found.method, coerce(list(texts(begin, pump, size))[number]))

    for begin, pump in seeds(found.pattern, found.flags):
        for number, short in enumerate(texts(begin, pump, SHORT)):
            try:
                # whatever takes longer than in proportion is seen in parts of the text
                if used(compiled, found.method, coerce(short)) > GOAL_S / 100 and time_of(number, LONGER) > GOAL_S:
                    # whatever takes a busy machine long takes it so by chance, and not each time
                    if all(time_of(number, 100_000) > LIMIT_S for _ in range(3)):
                        return repr((begin, pump))
            except TooLong:
                return repr((begin, pump))
    return ""


def test_every_pattern_takes_time_in_proportion_to_the_text() -> None:
    found, _ = patterns()
    assert len(found) > 150
    names = [name for each in found for name in (each.where, each.where.split()[0])]
    assert OF_THE_PROGRAM.keys() <= set(names), "a pattern that is not there any more"
    others = [each for each in found if not {each.where, each.where.split()[0]} & OF_THE_PROGRAM.keys()]
    slow = {each: seed for each in others if (seed := too_slow(each))}
    assert not slow, "\n".join(f"{each.where} {each.method} {each.pattern!r}: {why}" for each, why in slow.items())


def test_every_pattern_that_is_made_at_run_time_is_named_with_the_reason() -> None:
    assert set(patterns()[1]) == MADE_AT_RUN_TIME.keys()


#: Pieces of hostile texts for what looks at texts by more than one pattern.
PIECES = [
    *(
        ' File "\n',
        '  File "x", line 1\n',
        "Traceback (most recent call last):\n ",
        "\tat a.b(C.java)\n",
        "\tat ",
        "\n\t",
    ),
    *("Caused by: java.io.IOException: ", "\nCaused by: x", "java.net.ConnectException: ", "Task 1 lost ", "\tat "),
    *("token", "secret=", "token='", "password=[", '("token", ', "://", "https://a:", "@", "&a=", "Bearer ", "\n\t"),
    *("-----BEGIN PRIVATE KEY-----", "<flinkish-error ", "\\", "\\'", '"', "'", "a,", "[", '{"a":', " ", "\n", "x"),
    *("1", "/", "$", "\u202e"),
]

_CSV = CsvRowDeserializationSchema.Builder(Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.INT()]))
_CAST = '[CAST_INVALID_INPUT] The value \'{}\' of the type "STRING" cannot be cast to "BIGINT"'


def parsed(schema: Any) -> Callable[[str], object]:
    def parse(text: str) -> object:
        try:
            return schema.deserialize(text.encode())
        except FlinkishError as error:
            return str(error)

    return parse


READERS: dict[str, Callable[[str], object]] = {
    "an error of Spark that quotes it": lambda text: translate(NumberFormatException(_CAST.format(text)), "job", b"x"),
    "a cause of such an error": lambda text: translate(NumberFormatException(f"x\nCaused by: {text}"), "job", b"x"),
    "an error of flinkish": lambda text: str(OperationError(text)),
    "the search for secrets": redact,
    "a record of CSV": parsed(_CSV.build()),
    "one with an escape character": parsed(_CSV.set_escape_character("\\").build()),
    "one with comments": parsed(_CSV.set_allow_comments(True).build()),
    "a record of JSON": parsed(
        JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["a"], [Types.STRING()])).build()
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_hostile_text_of_100_kb_does_not_hold_up(reader: str) -> None:
    for piece in PIECES:
        began = time.process_time()
        with at_most(LIMIT_S * 4):
            READERS[reader](piece * (100_000 // len(piece)) + "\x00")
        assert time.process_time() - began < LIMIT_S * 2, (reader, piece)


def test_a_cell_that_looks_like_a_traceback_ends_as_an_error_of_spark() -> None:
    cell = "x\n" + ' File "\n' * 10_000 + "\n"
    error = translate(NumberFormatException(_CAST.format(cell)), "job")
    assert type(error) is OperationError and "CAST_INVALID_INPUT" in str(error)


#: Where bytes are split, of which Python takes only a line feed and a carriage return for an end, and where the first
#: line of an error is shown.
SPLIT_OTHERWISE = {
    *("delta/log.py", "delta/actions.py", "connectors/file_system/lines.py"),
    *("connectors/spark.py", "spark/executor_access.py", "state/console.py"),
}


def test_lines_of_a_text_end_with_a_line_feed_alone() -> None:
    """`str.splitlines` takes ten characters for an end, which names, values and messages of others may hold."""
    found = {
        name_of(path)
        for path in trees()
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute) and node.attr == "splitlines"
    }
    assert found == SPLIT_OTHERWISE
