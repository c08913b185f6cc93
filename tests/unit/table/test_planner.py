"""What queries mean: their columns, as Flink 2.3 has given them, what is refused, and what a plan leaves out."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from flinkish.table.window import Session, Slide, Tumble

from flinkish.errors import MalformedRecordError, ProgramError
from flinkish.table import StreamTableEnvironment, planner, sql, syntax
from flinkish.table.catalog import Catalog
from flinkish.table.explain import explain
from flinkish.table.expressions import col, lit
from flinkish.table.logical_types import INT
from flinkish.table.plan import Aggregate, Calc, Changes, Relation, Scan, Sink
from flinkish.table.projections import prune
from flinkish.table.schema import TableDescriptor
from tests.support.programs import new_environment

TABLES = {
    "orders": "id BIGINT, user_id STRING, amount DOUBLE, price DECIMAL(10, 2), qty INT, country STRING, ms BIGINT, "
    "o ROW<a INT, ts TIMESTAMP(3)>, ts AS TO_TIMESTAMP_LTZ(ms, 3), pt AS PROCTIME(), "
    "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND",
    "bids": "id BIGINT, price INT, url STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND",
    "few": "a STRING, b BIGINT",
    "five": "a STRING, b INT, c DECIMAL(10, 2), d DOUBLE, e TIMESTAMP(3)",
    "keyed": "a STRING, b BIGINT, PRIMARY KEY (a) NOT ENFORCED",
}
DATAGEN = "'connector' = 'datagen'"
OPTIONS = {
    **dict.fromkeys(("few", "five"), "'connector' = 'filesystem', 'path' = '/tmp/none', 'format' = 'csv'"),
    "keyed": "'connector' = 'jdbc', 'url' = 'jdbc:sqlite:none', 'table-name' = 'keyed'",
}
DDL = {name: f"CREATE TABLE {name} ({columns}) WITH ({OPTIONS.get(name, DATAGEN)})" for name, columns in TABLES.items()}
MINUTE = "INTERVAL '1' MINUTE"
BY_WINDOW = "GROUP BY window_start, window_end"
TUMBLED = f"TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), {MINUTE}))"
BOUNDS = "window_start TIMESTAMP(3), window_end TIMESTAMP(3)"
PER_USER = (
    f"SELECT window_start, window_end, user_id, COUNT(*) AS c FROM {TUMBLED} GROUP BY window_start, window_end, user_id"
)


@pytest.fixture
def catalog() -> Catalog:
    return new_catalog()


def new_catalog(batch: bool = False, zone: str = "UTC") -> Catalog:
    made = Catalog(lambda: zone, lambda: batch)
    for name, statement in DDL.items():
        created = sql.parse(statement)
        assert isinstance(created, syntax.CreateTable)
        made.add_table(name, TableDescriptor(created.definition))
    return made


def relation_of(query: str, catalog: Catalog) -> Relation:
    return planner.resolve(sql.parse_query(query), catalog, query)


def sink_of(statement: str, catalog: Catalog) -> Sink:
    insert = sql.parse(statement)
    assert isinstance(insert, syntax.Insert)
    return planner.resolve_insert(insert, catalog, statement)


def columns_of(relation: Relation) -> str:
    return ", ".join(f"{f.name} {f.type}" + (f" *{f.time.value}*" if f.time else "") for f in relation.fields)


def plan_of(query: str, catalog: Catalog) -> str:
    return explain(prune([relation_of(query, catalog)]))


#: Recorded from PyFlink 2.3.
COLUMNS = {
    "SELECT user_id, user_id, qty FROM orders": "user_id STRING, user_id0 STRING, qty INT",
    "SELECT user_id, qty AS user_id, qty AS user_id0 FROM orders": "user_id STRING, user_id0 INT, user_id00 INT",
    "SELECT price + 1, *, price + 2 FROM bids": "EXPR$0 INT, id BIGINT, price INT, url STRING, "
    "ts TIMESTAMP(3) *ROWTIME*, EXPR$5 INT",
    "SELECT o.a, o.ts, t.o.a, t.id FROM orders AS t": "a INT, ts TIMESTAMP(3), a0 INT, id BIGINT",
    "SELECT user_id, COUNT(*), SUM(qty + 1), SUM(DISTINCT qty) FILTER (WHERE amount > 1) s FROM orders "
    "GROUP BY user_id": "user_id STRING, EXPR$1 BIGINT, EXPR$2 INT, s INT",
    "SELECT UPPER(user_id) u, COUNT(*) c FROM orders GROUP BY UPPER(user_id) HAVING COUNT(*) > 3": "u STRING, c BIGINT",
    "SELECT DISTINCT user_id, qty FROM orders": "user_id STRING, qty INT",
    "SELECT c, COUNT(*) FROM (SELECT user_id, COUNT(*) c FROM orders GROUP BY user_id) GROUP BY c":
    "c BIGINT, EXPR$1 BIGINT",
    "SELECT COUNT(*) FROM orders HAVING COUNT(*) > 3": "EXPR$0 BIGINT",
    "SELECT `EXPR$0` FROM (SELECT COUNT(*) FROM orders)": "EXPR$0 BIGINT",
    "SELECT MIN(user_id), SUM(price), AVG(price), AVG(qty), SUM(amount), VAR_POP(qty), STDDEV_SAMP(price) FROM orders":
    "EXPR$0 STRING, EXPR$1 DECIMAL(38, 2), EXPR$2 DECIMAL(38, 6), EXPR$3 INT, EXPR$4 DOUBLE, EXPR$5 INT, "
    "EXPR$6 DECIMAL(38, 6)",
    f"SELECT * FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), {MINUTE}))": "id BIGINT, price INT, url STRING, "
    f"ts TIMESTAMP(3) *ROWTIME*, {BOUNDS}, window_time TIMESTAMP(3) *ROWTIME*",
    f"SELECT window_time, user_id FROM {TUMBLED}": "window_time TIMESTAMP_LTZ(3) *ROWTIME*, user_id STRING",
    f"SELECT window_time, pt FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(pt), {MINUTE}))":
    "window_time TIMESTAMP_LTZ(3) *PROCTIME*, pt TIMESTAMP_LTZ(3) *PROCTIME*",
    f"SELECT window_start, window_end, window_time wt, COUNT(*) c FROM {TUMBLED} "
    "GROUP BY window_start, window_end, window_time": f"{BOUNDS}, wt TIMESTAMP_LTZ(3) *ROWTIME*, c BIGINT",
    f"SELECT window_start, COUNT(*) c FROM {TUMBLED} GROUP BY window_start": "window_start TIMESTAMP(3), c BIGINT",
    f"SELECT window_start, window_end, SUM(c) FROM ({PER_USER}) {BY_WINDOW}": f"{BOUNDS}, EXPR$2 BIGINT",
    f"SELECT TUMBLE_START(ts, {MINUTE}) s, TUMBLE_END(ts, {MINUTE}), TUMBLE_ROWTIME(ts, {MINUTE}) r, user_id, COUNT(*) "
    f"FROM orders GROUP BY TUMBLE(ts, {MINUTE}), user_id": "s TIMESTAMP(3), EXPR$1 TIMESTAMP(3), "
    "r TIMESTAMP_LTZ(3) *ROWTIME*, user_id STRING, EXPR$4 BIGINT",
    f"SELECT SESSION_START(pt, {MINUTE}) s, SESSION_PROCTIME(pt, {MINUTE}), COUNT(*) FROM orders "
    f"GROUP BY SESSION(pt, {MINUTE}), user_id": "s TIMESTAMP(3), EXPR$1 TIMESTAMP_LTZ(3) *PROCTIME*, EXPR$2 BIGINT",
    "SELECT ts, id FROM orders UNION ALL SELECT ts, id + 1 FROM orders": "ts TIMESTAMP_LTZ(3) *ROWTIME*, id BIGINT",
    "SELECT id FROM orders UNION ALL SELECT qty FROM orders UNION ALL SELECT price FROM orders": "id DECIMAL(21, 2)",
    "VALUES (1, 'a'), (2, 'bcd')": "EXPR$0 INT, EXPR$1 VARCHAR(3)",
    "WITH a(x, y) AS (SELECT user_id, qty FROM orders), b AS (SELECT x FROM a) SELECT * FROM b": "x STRING",
    "SELECT t.x FROM (SELECT user_id x FROM orders) t": "x STRING",
    "SELECT y, x FROM (SELECT id, qty FROM orders WHERE qty > 1) AS t (x, y) WHERE x > 2": "y INT, x BIGINT",
}  # fmt: skip


@pytest.mark.parametrize("query", COLUMNS)
def test_a_query_has_the_columns_that_it_has_in_flink(query: str, catalog: Catalog) -> None:
    assert columns_of(relation_of(query, catalog)) == COLUMNS[query]


#: Query -> the sentence, parts of which Flink 2.3 says too.
REFUSED = {
    "SELECT nope FROM orders": "there is no column 'nope' [line 1, column 8,",
    "SELECT USER_ID FROM orders": "did you mean user_id?",
    "SELECT price FROM Orders": "did you mean orders?",
    "SELECT O.a FROM orders AS t": "there is no column 'O.a'",
    "SELECT orders.id FROM orders AS t": "there is no column 'orders.id'",
    "SELECT bids.* FROM bids AS b": "Unknown identifier 'bids'",
    "SELECT user_id FROM (SELECT user_id, country AS user_id FROM orders)": "Column 'user_id' is ambiguous",
    "SELECT * FROM (SELECT user_id, country AS user_id FROM orders)": "Column 'user_id' is ambiguous",
    "SELECT user_id, COUNT(*) FROM orders": "Expression 'user_id' is not being grouped [line 1, column 8,",
    "SELECT user_id u, COUNT(*) c FROM orders GROUP BY u": "there is no column 'u' [line 1, column 51,",
    "SELECT user_id, COUNT(*) FROM orders GROUP BY 1": "Expression 'user_id' is not being grouped",
    "SELECT user_id FROM orders HAVING qty > 3": "is not being grouped",
    "SELECT SUM(COUNT(*)) FROM orders": "Aggregate expressions cannot be nested",
    "SELECT user_id FROM orders WHERE COUNT(*) > 1": "Aggregate expression is illegal in WHERE clause",
    "SELECT SUM(user_id) FROM orders": "Cannot apply 'SUM' to arguments of type 'SUM(<STRING>)'.*"
    "SUM(CAST(user_id AS DOUBLE))",
    "SELECT COUNT(id, qty) FROM orders": "COUNT of 2 arguments",
    "SELECT id FROM orders WHERE qty": "a condition of type INT: qty",
    "SELECT id, qty FROM orders UNION ALL SELECT qty FROM orders": "Column count mismatch in UNION ALL",
    "SELECT id FROM orders UNION ALL SELECT user_id FROM orders":
    "Type mismatch in column 1 of UNION ALL: BIGINT, STRING",
    "SELECT 1, NULL": "Illegal use of 'NULL' in the column 'EXPR$1'",
    "SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS t(x)": "table has 2 columns, whereas alias list has 1 columns",
    "VALUES (1, 'a'), (2)": "Values passed to VALUES operator must have compatible types",
    "SELECT user_id FROM orders LIMIT 3": "LIMIT of an unbounded table is not supported",
    f"SELECT window_time, COUNT(*) FROM {TUMBLED} GROUP BY window_start, window_end":
    "Expression 'window_time' is not being grouped",
    f"SELECT TUMBLE(ts, {MINUTE}) FROM orders GROUP BY TUMBLE(ts, {MINUTE})":
    "'TUMBLE' must have matching call to group function 'TUMBLE' in GROUP BY clause",
    f"SELECT TUMBLE_END(ts, INTERVAL '2' MINUTE) FROM orders GROUP BY TUMBLE(ts, {MINUTE})":
    "'TUMBLE_END' must have matching call to group function 'TUMBLE'",
    f"SELECT COUNT(*) FROM orders GROUP BY TUMBLE(ts, {MINUTE}), TUMBLE(pt, {MINUTE})": "more than one window",
    f"SELECT COUNT(*) FROM orders GROUP BY TUMBLE(ms, {MINUTE})":
    "requires the timecol 'ms' to be a time attribute, but is BIGINT.*declare WATERMARK FOR ms .* in CREATE TABLE "
    "orders",
    f"SELECT COUNT(*) FROM TABLE(TUMBLE((SELECT CAST(ts AS TIMESTAMP(3)) t FROM orders), DESCRIPTOR(t), {MINUTE}))":
    "requires the timecol 't' to be a time attribute, but is TIMESTAMP(3)",
    f"SELECT COUNT(*) FROM orders GROUP BY TUMBLE(o.ts, {MINUTE})":
    "requires the timecol 'o.ts' to be a time attribute",
    f"SELECT TUMBLE_ROWTIME(pt, {MINUTE}) FROM orders GROUP BY TUMBLE(pt, {MINUTE})":
    "TUMBLE_ROWTIME of a window of processing",
    f"SELECT COUNT(*) FROM (SELECT PROCTIME() p, c FROM (SELECT COUNT(*) c FROM orders)) GROUP BY TUMBLE(p, {MINUTE})":
    "doesn't support consuming update changes which is produced by node GroupAggregate(select=[COUNT(*)])",
    "SELECT COUNT(*) FROM TABLE(CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' MINUTE, INTERVAL '5' MINUTE))":
    "CUMULATE table function based aggregate requires maxSize must be an integral multiple of step, but got maxSize "
    "300000 ms and step 120000 ms",
    "SELECT COUNT(*) FROM TABLE(HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' MINUTE, INTERVAL '5' MINUTE))":
    "HOP table function based aggregate requires size must be an integral multiple of slide",
    f"SELECT COUNT(*) FROM TABLE(SESSION(TABLE orders PARTITION BY user_id, DESCRIPTOR(ts), {MINUTE}))":
    "SESSION without GROUP BY of its windows is not supported",
    f"SELECT user_id FROM TABLE(SESSION(TABLE orders PARTITION BY user_id, DESCRIPTOR(ts), {MINUTE}))":
    "SESSION without GROUP BY of its windows is not supported",
}  # fmt: skip


@pytest.mark.parametrize("query", REFUSED)
def test_what_flink_refuses_is_refused_before_a_job(query: str, catalog: Catalog) -> None:
    with pytest.raises(ProgramError, match=pattern(REFUSED[query])):
        plan_of(query, catalog)


def pattern(sentence: str) -> str:
    return ".*".join(map(re.escape, sentence.replace(" .* ", ".*").split(".*")))


#: INSERT -> the columns that are written, or what is said.
INSERTS = {
    "INSERT INTO few SELECT user_id, qty FROM orders": "Calc(select=[user_id AS a, CAST(qty AS BIGINT) AS b])",
    "INSERT INTO few (b, a) SELECT qty, user_id FROM orders": "Calc(select=[user_id AS a, CAST(qty AS BIGINT) AS b])",
    "INSERT INTO few (b) SELECT id FROM orders": "Calc(select=[null:STRING AS a, id AS b])",
    "INSERT INTO few VALUES ('x', 1), ('y', NULL)": "Values(rows=[2], values=[",
    "INSERT INTO five SELECT user_id, qty, amount, price, ts FROM orders":
    "Calc(select=[user_id AS a, qty AS b, CAST(amount AS DECIMAL(10, 2)) AS c, CAST(price AS DOUBLE) AS d, "
    "CAST(ts AS TIMESTAMP(3)) AS e])",
    "INSERT INTO keyed SELECT user_id, COUNT(*) FROM orders GROUP BY user_id": "GroupAggregate(groupBy=[user_id]",
    "INSERT INTO keyed SELECT country, COUNT(*) FROM orders GROUP BY user_id, country":
    "GroupAggregate(groupBy=[user_id, country]",
    "INSERT INTO keyed SELECT m, n FROM (SELECT MAX(country) m, id AS n FROM orders GROUP BY id)":
    "The rows of the query change by the columns (b), the PRIMARY KEY of 'keyed' is (a).*"
    "declare PRIMARY KEY (b) NOT ENFORCED",
    "INSERT INTO few SELECT user_id FROM orders":
    "Column types of query result and sink for 'default_catalog.default_database.few' do not match. Cause: Different "
    "number of columns. Query schema: [user_id: STRING] Sink schema: [a: STRING, b: BIGINT]",
    "INSERT INTO few SELECT user_id, price FROM orders": "Cause: Incompatible types for sink column 'b' at position 2. "
    "Query schema: [user_id: STRING, price: DECIMAL(10, 2)] Sink schema: [a: STRING, b: BIGINT]",
    "INSERT INTO five (b) SELECT id FROM orders": "Incompatible types for sink column 'b' at position 2",
    "INSERT INTO few (b, nope) SELECT qty, user_id FROM orders": "Unknown target column 'nope'",
    "INSERT INTO keyed (b) SELECT id FROM orders": "Column 'a' has no default value and does not allow NULLs",
    "INSERT INTO few (b, b) SELECT qty, id FROM orders": "Target column 'b' is assigned more than once",
    "INSERT INTO fewer SELECT 1": "there is no table 'fewer'",
    "INSERT INTO few SELECT user_id, c FROM (SELECT user_id, COUNT(*) c FROM orders GROUP BY user_id) WHERE c > 1":
    "Table sink 'default_catalog.default_database.few' doesn't support consuming update changes which is produced by "
    "node GroupAggregate(groupBy=[user_id], select=[user_id, COUNT(*)]).*PRIMARY KEY",
    "INSERT INTO few SELECT DISTINCT user_id, id FROM orders":
    "produced by node GroupAggregate(groupBy=[user_id, id], select=[user_id, id])",
}  # fmt: skip


@pytest.mark.parametrize("statement", INSERTS)
def test_an_insert_writes_what_flink_writes_or_says_why_not(statement: str, catalog: Catalog) -> None:
    try:
        found = explain(planner.pruned([sink_of(statement, catalog)]))
    except ProgramError as error:
        found = str(error)
    assert re.search(pattern(INSERTS[statement]), found), found


def test_a_column_of_the_primary_key_is_never_null(catalog: Catalog) -> None:
    [sink] = planner.pruned([sink_of("INSERT INTO keyed SELECT country, id FROM orders", catalog)])
    assert isinstance(sink.input, Calc)
    batch = pa.record_batch({"country": ["a", None], "id": pa.array([1, 2])})
    assert sink.input.outputs[0](batch[:1], 0).to_pylist() == ["a"]
    with pytest.raises(
        MalformedRecordError, match="Column 'a' is NOT NULL, however, a null value is being written into it"
    ):
        sink.input.outputs[0](batch, 0)


#: Query -> its plan.
PLANS = {
    "SELECT id + 1 AS n FROM (SELECT id, UPPER(user_id) u, qty FROM orders WHERE qty > 1) WHERE id < 9": """
Calc(select=[id + 1 AS n], where=[(qty > 1) AND (id < 9)])
+- TableSourceScan(table=[[default_catalog, default_database, orders]], fields=[id, qty])""",
    "SELECT u || u AS a FROM (SELECT UPPER(user_id) AS u FROM orders)": """
Calc(select=[u || u AS a])
+- Calc(select=[UPPER(user_id) AS u])
   +- TableSourceScan(table=[[default_catalog, default_database, orders]], fields=[user_id])""",
    "SELECT COUNT(*) AS c FROM orders": """
Calc(select=[COUNT(*) AS c])
+- GroupAggregate(select=[COUNT(*)])
   +- TableSourceScan(table=[[default_catalog, default_database, orders]], fields=[id])""",
    "SELECT user_id, c FROM (SELECT user_id, COUNT(*) c, MAX(amount) m FROM orders GROUP BY user_id)": """
Calc(select=[user_id, COUNT(*) AS c])
+- GroupAggregate(groupBy=[user_id], select=[user_id, COUNT(*)])
   +- TableSourceScan(table=[[default_catalog, default_database, orders]], fields=[user_id])""",
    f"SELECT window_end, c FROM ({PER_USER}) WHERE c > 1": """
Calc(select=[window_end, COUNT(*) AS c], where=[COUNT(*) > 1])
+- WindowAggregate(groupBy=[user_id], window=[TUMBLE(time_col=[ts], size=[60000 ms])], select=[user_id, COUNT(*)])
   +- WatermarkAssigner(rowtime=[ts], watermark=[ts - 5000 ms])
      +- Calc(select=[user_id, TO_TIMESTAMP_LTZ(ms, 3) AS ts])
         +- TableSourceScan(table=[[default_catalog, default_database, orders]], fields=[user_id, ms])""",
    f"SELECT COUNT(*) c FROM (SELECT *, qty * 2 q FROM {TUMBLED} WHERE qty > 1) GROUP BY window_start, window_end": """
Calc(select=[COUNT(*) AS c])
+- WindowAggregate(window=[TUMBLE(time_col=[ts], size=[60000 ms])], select=[COUNT(*)])
   +- Calc(select=[ts], where=[qty > 1])
      +- WatermarkAssigner(rowtime=[ts], watermark=[ts - 5000 ms])
         +- Calc(select=[qty, TO_TIMESTAMP_LTZ(ms, 3) AS ts])
            +- TableSourceScan(table=[[default_catalog, default_database, orders]], fields=[qty, ms])""",
}  # fmt: skip


@pytest.mark.parametrize("query", PLANS)
def test_a_plan_has_only_what_is_used_and_no_projection_twice(query: str, catalog: Catalog) -> None:
    assert plan_of(query, catalog).strip() == PLANS[query].strip()


def test_windows_whose_rows_were_selected_by_their_bounds_meet_again(catalog: Catalog) -> None:
    source = f"(SELECT * FROM {TUMBLED} WHERE window_start > TIMESTAMP '2024-01-01 00:00:00')"
    query = f"SELECT window_start, window_end, COUNT(*) c FROM {source} GROUP BY window_start, window_end"
    assert columns_of(relation_of(query, catalog)) == f"{BOUNDS}, c BIGINT"
    plan = plan_of(query, catalog)
    assert "window=[TUMBLE(time_col=[window_time0], size=[1 ms])]" in plan
    assert "WindowTableFunction(window=[TUMBLE(time_col=[ts], size=[60000 ms])])" in plan


def test_windows_of_a_union_meet_again_and_those_of_processing_time_are_ordinary_columns(catalog: Catalog) -> None:
    both = f"{PER_USER} UNION ALL {PER_USER}"
    plan = plan_of(f"SELECT window_start, SUM(c) FROM ({both}) {BY_WINDOW}", catalog)
    assert "window=[TUMBLE(time_col=[window_time0], size=[1 ms])], select=[window_start0, window_end0, SUM(c)]" in plan
    other = PER_USER.replace(MINUTE, "INTERVAL '2' MINUTE")
    plan = plan_of(f"SELECT window_start, SUM(c) FROM ({PER_USER} UNION ALL {other}) {BY_WINDOW}", catalog)
    assert "GroupAggregate(groupBy=[window_start, window_end], select=[window_start, window_end, SUM(c)])" in plan
    plan = plan_of(f"SELECT window_start, SUM(c) FROM ({PER_USER.replace('(ts)', '(pt)')}) {BY_WINDOW}", catalog)
    assert "GroupAggregate(groupBy=[window_start, window_end], select=[window_start, window_end, SUM(c)])" in plan


def test_inserts_of_one_job_read_a_table_once_with_the_columns_of_both(catalog: Catalog) -> None:
    statements = (
        "INSERT INTO few SELECT user_id, id FROM orders",
        "INSERT INTO few SELECT country, id FROM orders WHERE qty > 1",
    )
    sinks = planner.pruned([sink_of(statement, catalog) for statement in statements])
    first, second = (sink.input.inputs[0] for sink in sinks)
    assert first is second
    assert isinstance(first, Scan)
    assert [field.name for field in first.fields] == ["id", "user_id", "qty", "country"]


def test_updates_go_up_to_the_query_and_end_in_windows_and_in_batch_programs(catalog: Catalog) -> None:
    counted = "SELECT user_id, COUNT(*) c FROM orders GROUP BY user_id"
    found = relation_of(f"SELECT c, user_id FROM ({counted}) WHERE c > 1", catalog)
    assert (found.changes, found.unique_key) == (Changes.RETRACT, ("user_id",))
    assert relation_of(f"SELECT c FROM ({counted})", catalog).unique_key == ()
    windowed = relation_of(PER_USER, catalog)
    assert (windowed.changes, windowed.unique_key) == (Changes.INSERT, ("user_id", "window_start", "window_end"))
    values = "SELECT x, COUNT(*) c FROM (VALUES (1), (2)) AS t (x) GROUP BY x"
    assert relation_of(values, new_catalog(batch=True)).changes is Changes.INSERT


def test_calls_that_are_equal_are_one_state_and_are_named_by_their_text(catalog: Catalog) -> None:
    query = (
        "SELECT SUM(qty) / COUNT(*) x, SUM(qty) y, COUNT(1) z, COUNT(DISTINCT user_id) d, LISTAGG(user_id, ';') l, "
        "SUM(qty) FILTER (WHERE qty > 1) f, SUM(t.qty) v FROM orders AS t HAVING COUNT(*) > 1"
    )
    found = relation_of(query, catalog)
    while isinstance(found, Calc):
        found = found.input
    assert isinstance(found, Aggregate)
    assert [call.name for call in found.calls] == [
        *("SUM(qty)", "COUNT(*)", "COUNT(DISTINCT user_id)", "LISTAGG(user_id, ';')"),
        "SUM(qty) FILTER (WHERE qty > 1)",
    ]


SAME = {
    "projections": (
        lambda t: t.where(col("qty") > 1).select(col("id"), (col("qty") + 1).alias("q")).distinct(),
        "SELECT DISTINCT id, qty + 1 AS q FROM orders WHERE qty > 1",
    ),
    "groups": (
        lambda t: t.group_by(col("user_id"))
        .select(col("user_id"), col("qty").sum.alias("s"), col("id").count.alias("n")),
        "SELECT user_id, SUM(qty) AS s, COUNT(id) AS n FROM orders GROUP BY user_id",
    ),
    "unions": (
        lambda t: t.select(col("id")).union_all(t.select(col("ms"))),
        "SELECT id FROM orders UNION ALL SELECT ms FROM orders",
    ),
    "Tumble": (
        lambda t: t.window(Tumble.over(lit(10).minutes).on(col("ts")).alias("w")).group_by(col("w"), col("user_id"))
        .select(col("user_id"), col("w").start.alias("a"), col("w").end.alias("b"), col("w").rowtime.alias("r")),
        "SELECT user_id, TUMBLE_START(ts, INTERVAL '10' MINUTE) a, TUMBLE_END(ts, INTERVAL '10' MINUTE) b, "
        "TUMBLE_ROWTIME(ts, INTERVAL '10' MINUTE) r FROM orders GROUP BY TUMBLE(ts, INTERVAL '10' MINUTE), user_id",
    ),
    "Slide": (
        lambda t: t.window(Slide.over(lit(10).minutes).every(lit(1).minutes).on(col("ts")).alias("w"))
        .group_by(col("w")).select(col("w").start.alias("a"), col("amount").avg.alias("m")),
        "SELECT HOP_START(ts, INTERVAL '1' MINUTE, INTERVAL '10' MINUTE) a, AVG(amount) m FROM orders "
        "GROUP BY HOP(ts, INTERVAL '1' MINUTE, INTERVAL '10' MINUTE)",
    ),
    "Session": (
        lambda t: t.window(Session.with_gap(lit(10).minutes).on(col("ts")).alias("w"))
        .group_by(col("w"), col("user_id")).select(col("user_id"), col("id").count.alias("n")),
        "SELECT user_id, COUNT(id) n FROM orders GROUP BY SESSION(ts, INTERVAL '10' MINUTE), user_id",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_calls_of_the_table_api_make_the_plan_of_the_query(name: str) -> None:
    t_env = StreamTableEnvironment.create(new_environment())
    t_env.execute_sql(DDL["orders"])
    made, query = SAME[name]
    assert made(t_env.from_path("orders")).explain() == t_env.sql_query(query).explain()


def test_plans_may_be_very_deep_and_very_wide(catalog: Catalog) -> None:
    deep = relation_of("SELECT id, qty FROM orders", catalog)
    more: syntax.Expression = syntax.Column(("qty",))
    for _ in range(1_000):
        doubled = syntax.Call("+", (more, more))
        items = (syntax.Column(("id",)), syntax.Alias(syntax.Call("+", (more, syntax.Literal(1, INT))), "qty"))
        deep = planner.resolve(syntax.Select(items, syntax.Resolved(deep), syntax.Call(">", (doubled, more))), catalog)
    assert columns_of(prune([deep])[0]) == "id BIGINT, qty INT"
    names = [f"c{number}" for number in range(10_000)]
    created = sql.parse(
        f"CREATE TABLE wide ({', '.join(f'{name} INT' for name in names)}) WITH ('connector' = 'datagen')"
    )
    assert isinstance(created, syntax.CreateTable)
    catalog.add_table("wide", TableDescriptor(created.definition))
    query = f"SELECT c7, {', '.join(f'SUM({name}) AS s{name}' for name in names)} FROM wide GROUP BY c7"
    [wide] = prune([relation_of(f"SELECT sc3, c7 FROM ({query})", catalog)])
    assert [field.name for field in wide.fields] == ["sc3", "c7"]
    assert "fields=[c3, c7]" in explain([wide])
