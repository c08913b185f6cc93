"""Expressions: what is refused and in which words, what is computed for which rows, and trees deeper than the stack.

Answers are compared with Flink's in `test_recorded_answers.py`.
"""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from flinkish.common.typeinfo import Types
from flinkish.errors import MalformedRecordError, ProgramError
from flinkish.table import DataTypes, syntax
from flinkish.table import logical_types as types
from flinkish.table.catalog import Catalog
from flinkish.table.logical_types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, LogicalType, of_type_info
from flinkish.table.plan import Field
from flinkish.table.planner import Planner
from flinkish.table.resolved import Constant, InputColumn, Node, aggregate_type, resolve_expression
from flinkish.table.sql import parse_expression
from flinkish.table.syntax import Call, Cast, Column, Literal
from flinkish.table.udf import UserFunction, udf

COLUMNS = {
    "a": INT, "b": BIGINT, "x": DOUBLE, "s": STRING, "k": BOOLEAN, "t": types.timestamp(3), "d": types.decimal(10, 2),
    "r": types.row(["y", "z"], [INT, STRING]),
}  # fmt: skip


def resolved(expression: str | syntax.Expression, **functions: UserFunction) -> Node:
    parsed = parse_expression(expression) if isinstance(expression, str) else expression
    planner = Planner(Catalog(lambda: "Europe/Berlin", lambda: False, functions=functions))
    return resolve_expression(parsed, planner, {name: Field(name, kind) for name, kind in COLUMNS.items()})


def batch(**columns: list[Any]) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(values, COLUMNS[name].arrow) for name, values in columns.items()})


def values(node: Node, columns: pa.RecordBatch) -> list[Any]:
    found = node(columns, 0)
    return list((pa.repeat(found, columns.num_rows) if isinstance(found, pa.Scalar) else found).to_pylist())


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("a + s", r"\+ cannot be applied to INT \+ STRING \[line 1, column 3, .*CAST\(s AS INT\)"),
        ("s > 1", r"> cannot be applied to STRING > INT.*CAST\(s AS INT\)"),
        ("UPPER(a)", r"UPPER cannot be applied to UPPER\(INT\).*expected UPPER\(<CHARACTER>\).*CAST\(a AS \.\.\.\)"),
        ("SUBSTRING(s)", r"expected SUBSTRING\(<CHARACTER>, <INTEGER>, <INTEGER> \(optional\)\)"),
        ("CASE WHEN k THEN a ELSE s END", "CASE cannot be applied"),
        ("a + NULL", "Illegal use of 'NULL'"),
        ("UPER(s)", r"there is no function UPER \[line 1, column 1, .*such as UPPER.*@udf\(result_type=\.\.\.\)"),
        ("SUM(a)", "the aggregate function SUM stands where there is no group.*HAVING"),
        ("CAST(b AS TIMESTAMP(3))", r"no CAST of BIGINT to TIMESTAMP\(3\): b.*TO_TIMESTAMP_LTZ"),
        ("DATE_FORMAT(t, 'YYYY')", "the pattern 'YYYY' has 'YYYY', which is not known here"),
        ("REGEXP_EXTRACT(s, '[a-z&&[^b]]')", "no regular expression that Java and Python read alike"),
        ("JSON_VALUE(s, '$.a[*]')", r"the path '\$\.a\[\*\]' has a part that is not known here"),
        ("EXTRACT(EPOCH FROM s)", "EXTRACT cannot be applied"),
        ("FLOOR(t TO DECADE)", "there is no FLOOR"),
        ("r.w", "there is no field w among the fields y, z"),
        ("UUID()", "UUID is not supported: an epoch that is repeated"),
    ],
)
def test_what_does_not_fit_is_refused_with_place_and_remedy(expression: str, said: str) -> None:
    with pytest.raises(ProgramError, match=said):
        resolved(expression)


TOO_LONG = r"would have [0-9,]+ characters, of which 67,108,864 are the most"


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("REPEAT('a', 2000000000)", "REPEAT"),
        ("REPEAT('ab', 2147483647)", "REPEAT"),
        ("REPEAT(REPEAT('a', 60000), 60000)", "REPEAT"),
        ("CONCAT(REPEAT('a', 1000000000), REPEAT('a', 1000000000))", "REPEAT"),
        ("TO_BASE64(REPEAT('a', 1000000000))", "REPEAT"),
        ("ARRAY[REPEAT('a', 1000000000)]", "REPEAT"),
        ("JSON_VALUE(REPEAT('1', 1000000000), '$')", "REPEAT"),
        ("LPAD('a', 2000000000, 'b')", "LPAD"),
        ("RPAD('a', 2147483647, 'b')", "RPAD"),
        ("REPLACE(REPEAT('a', 60000), 'a', REPEAT('b', 60000))", "REPLACE"),
        ("REGEXP_REPLACE(REPEAT('a', 60000), 'a', REPEAT('b', 60000))", "REGEXP_REPLACE"),
        ("CAST('a' AS CHAR(2000000000))", "CAST"),
        ("CAST(a AS CHAR(2000000000))", "CAST"),
        ("CAST(X'00' AS BINARY(2000000000))", "CAST"),
        ("REPEAT(s, a)", "REPEAT"),
        ("LPAD(s, a, 'x')", "LPAD"),
        ("REPLACE(REPEAT(s, 50000), 'x', REPEAT(s, 50000))", "REPLACE"),
    ],
)
def test_no_function_makes_a_text_without_bound(expression: str, named: str) -> None:
    node = resolved(expression)
    columns = batch(a=[2_000_000_000, 1], s=["x", "y"])
    with pytest.raises(MalformedRecordError, match=rf"(?s){TOO_LONG}.*{named}"):
        node(columns, 0)


def test_the_planner_computes_short_texts_only() -> None:
    assert isinstance(resolved("REPEAT('ab', 3)"), Constant) and isinstance(resolved("REPEAT('a', -1)"), Constant)
    later = resolved("CHAR_LENGTH(REPEAT('a', 1000000))")
    assert not isinstance(later, Constant) and values(later, batch(a=[1, 2])) == [1_000_000] * 2
    assert values(resolved("CASE WHEN 1 > 2 THEN REPEAT('a', 2000000000) ELSE 'x' END"), batch(a=[1])) == ["x"]
    not_taken = resolved("CASE WHEN a = 2 THEN LPAD(s, a, 'x') ELSE CAST(a AS STRING) END")
    assert values(not_taken, batch(a=[2_000_000_000, 2], s=["x", "y"])) == ["2000000000", "xy"]


def test_the_texts_of_a_batch_are_bounded_together() -> None:
    node = resolved("REPEAT(s, 60000000)")
    with pytest.raises(MalformedRecordError, match=r"of a batch have more than 268,435,456 characters.*REPEAT"):
        node(batch(s=[chr(97 + n) for n in range(5)]), 0)
    with pytest.raises(MalformedRecordError, match=r"of a batch have more than 268,435,456 characters.*REPEAT"):
        node(batch(s=["a"] * 5), 0)


@pytest.mark.parametrize("expression", ["ROUND(d, -2000000000)", "TRUNCATE(x, 2000000000)"])
def test_a_result_that_no_number_is_fails_in_its_row(expression: str) -> None:
    with pytest.raises(MalformedRecordError, match=r"no number is the result.*row 1 of the batch"):
        resolved(expression)(batch(d=[None, Decimal(1)], x=[None, 1.5]), 0)


@pytest.mark.parametrize(
    ("expression", "columns", "row", "said"),
    [
        ("100 / a", {"a": [1, 0]}, 1, r"/ by zero \[100 / a, row 1 of the batch\]"),
        ("CAST(s AS INT) + 1", {"s": ["1", "x", "y"]}, 1, r"For input string: 'x'.*CAST\(s AS INT\)"),
        ("CASE WHEN a = 0 THEN 100 / a ELSE 0 END", {"a": [1, 0]}, 1, "/ by zero"),
        ("d % 0", {"d": [None, 1]}, 1, "/ by zero"),
    ],
)
def test_a_row_without_an_answer_is_named(expression: str, columns: dict[str, Any], row: int, said: str) -> None:
    with pytest.raises(MalformedRecordError, match=said) as raised:
        resolved(expression)(batch(**columns), 0)
    assert raised.value.position == row  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("CASE WHEN a <> 0 THEN 100 / a ELSE -1 END", [100, -1, -1, 50]),
        ("a <> 0 AND 100 / a > 60", [True, False, None, False]),
        ("a = 0 OR 100 / a > 60", [True, True, None, False]),
        ("COALESCE(a, 1 / (a - a))", [1, 0, None, 2]),
        ("CASE WHEN a IS NULL THEN 0 WHEN a = 0 THEN 1 WHEN 100 / a > 60 THEN 2 ELSE 3 END", [2, 1, 0, 3]),
        ("TRY_CAST(CAST(a AS STRING) || 'x' AS INT)", [None] * 4),
    ],
)
def test_what_is_not_chosen_may_fail(expression: str, expected: list[Any]) -> None:
    assert values(resolved(expression), batch(a=[1, 0, None, 2])) == expected


def chain(name: str, operands: list[syntax.Expression]) -> syntax.Expression:
    found = operands[0]
    for operand in operands[1:]:
        found = Call(name, (found, operand))
    return found


def test_trees_deeper_than_the_stack_are_resolved_travel_and_are_computed() -> None:
    ones: list[syntax.Expression] = [Column(("a",)), *[Literal(1, INT)] * 2_000]
    deep = pickle.loads(pickle.dumps(resolved(chain("+", ones))))
    assert values(deep, batch(a=[1, None])) == [2_001, None] and deep.text.endswith(") + 1")
    tests: list[syntax.Expression] = [Call("<>", (Column(("a",)), Literal(n, INT))) for n in range(10_000)]
    assert values(resolved(chain("AND", tests)), batch(a=[-1, 7, None])) == [True, False, None]
    casts: syntax.Expression = Column(("a",))
    for _ in range(500):
        casts = Cast(Cast(casts, STRING), INT)
    assert values(resolved(casts), batch(a=[3])) == [3]


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("a+1", "a + 1"),
        ("(a + b) * 2", "(CAST(a AS BIGINT) + b) * 2"),
        ("upper(s) || 'it''s'", "UPPER(s) || 'it''s'"),
        ("k AND a IS NULL AND NOT k", "k AND a IS NULL AND NOT(k)"),
        ("TRY_CAST(s AS INT)", "TRY_CAST(s AS INT)"),
        ("r.y", "r.y"),
        ("1 + 2 * 3", "7"),
        ("a BETWEEN 1 AND 2", "(a >= 1) AND (a <= 2)"),
    ],
)
def test_an_expression_has_the_text_of_flinks_plans(expression: str, text: str) -> None:
    assert resolved(expression).text == text


def test_a_function_of_the_program_gets_its_declared_types_and_wins_over_a_built_in_one() -> None:
    twice = udf(lambda number: None if number is None else number * 2, DataTypes.BIGINT(), DataTypes.BIGINT())
    node = resolved("upper(a) + 1", upper=twice)
    assert (str(node.type), node.functions, node.deterministic) == ("BIGINT", (twice,), False)
    assert values(node, batch(a=[5, None])) == [11, None]
    with pytest.raises(ProgramError, match=r"(?i)twice cannot be applied to twice\(STRING\).*expected twice\(BIGINT\)"):
        resolved("twice(s)", twice=twice)


@pytest.mark.parametrize(
    ("info", "text"),
    [
        (DataTypes.CHAR(3), "CHAR(3)"),
        (DataTypes.VARCHAR(10).not_null(), "VARCHAR(10)"),
        (DataTypes.STRING(), "STRING"),
        (DataTypes.BYTES(), "BYTES"),
        (DataTypes.TIMESTAMP(3), "TIMESTAMP(3)"),
        (Types.SQL_TIMESTAMP(), "TIMESTAMP(9)"),
        (DataTypes.TIMESTAMP_LTZ(3), "TIMESTAMP_LTZ(3)"),
        (DataTypes.TIME(), "TIME(0)"),
        (DataTypes.DECIMAL(10, 2), "DECIMAL(10, 2)"),
        (DataTypes.ARRAY(DataTypes.CHAR(2)), "ARRAY<CHAR(2)>"),
        (DataTypes.MAP(DataTypes.INT(), DataTypes.DATE()), "MAP<INT, DATE>"),
        (DataTypes.MULTISET(DataTypes.INT()), "MULTISET<INT>"),
        (DataTypes.ROW([DataTypes.FIELD("n", DataTypes.TIMESTAMP(0))]), "ROW<`n` TIMESTAMP(0)>"),
        (DataTypes.INTERVAL(DataTypes.DAY(), DataTypes.SECOND()), "INTERVAL SECOND(3)"),
        (DataTypes.INTERVAL(DataTypes.YEAR(), DataTypes.MONTH()), "INTERVAL MONTH"),
        (Types.TUPLE([Types.INT(), Types.STRING()]), "ROW<`f0` INT, `f1` STRING>"),
    ],
    ids=str,
)
def test_a_type_of_the_datastream_api_keeps_what_was_declared(info: Any, text: str) -> None:
    of = of_type_info(info)
    assert str(of) == text and of_type_info(of.info) == of
    assert pickle.loads(pickle.dumps(of)) == of and of.arrow == info.arrow_type()


@pytest.mark.parametrize(
    ("function", "argument", "text"),
    [
        ("COUNT", None, "BIGINT"),
        ("COUNT", STRING, "BIGINT"),
        ("SUM", INT, "INT"),
        ("SUM", types.decimal(10, 2), "DECIMAL(38, 2)"),
        ("AVG", INT, "INT"),
        ("AVG", types.decimal(10, 2), "DECIMAL(38, 6)"),
        ("MAX", STRING, "STRING"),
        ("STDDEV_POP", INT, "INT"),
        ("LISTAGG", STRING, "STRING"),
        ("FIRST_VALUE", types.timestamp(3), "TIMESTAMP(3)"),
        ("SUM", STRING, "None"),
        ("SUM", None, "None"),
    ],
)
def test_aggregates_have_the_types_of_flink(function: str, argument: LogicalType | None, text: str) -> None:
    assert str(aggregate_type(function, argument)) == text


def test_an_expression_says_which_columns_it_reads() -> None:
    assert resolved("CASE WHEN k THEN a + 1 ELSE r.y END").columns == {"k", "a", "r"}
    node = resolved("a")
    assert isinstance(node, InputColumn) and values(node, batch(a=[1])) == [1]
