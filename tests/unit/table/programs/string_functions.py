"""The functions of texts and numbers that programs use, in the Table API and in SQL."""

from flinkish.table import DataTypes, EnvironmentSettings, TableEnvironment
from flinkish.table import expressions as expr
from flinkish.table.expressions import col, lit

t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
table = t_env.from_elements(
    [("  Hello World ", 3.14159, 7, "a,b,c"), ("flink", -2.5, -8, ""), (None, None, None, None)],
    DataTypes.ROW(
        [
            DataTypes.FIELD("s", DataTypes.STRING()),
            DataTypes.FIELD("d", DataTypes.DOUBLE()),
            DataTypes.FIELD("i", DataTypes.INT()),
            DataTypes.FIELD("l", DataTypes.STRING()),
        ]
    ),
)
made = table.select(
    col("s").trim().upper_case.alias("u"),
    col("s").substring(1, 4).alias("sub"),
    col("s").like("%lin%").alias("k"),
    col("s").replace("l", "L").alias("r"),
    col("d").round(2).alias("rd"),
    col("d").floor().alias("f"),
    col("i").abs.alias("a"),
    (col("i") / 2).alias("half"),
    (-col("i")).alias("neg"),
    col("i").in_(7, 9).alias("isin"),
    col("s").is_null.alias("nul"),
    expr.coalesce(col("s"), lit("none")).alias("c"),
    col("i").between(0, 10).alias("bt"),
    expr.concat_ws("/", col("s"), col("l")).alias("ws"),
    col("l").char_length.alias("len"),
    (col("i") > 0).then("pos", "neg").alias("th"),
)
made.execute().print()
t_env.create_temporary_view("t", table)
t_env.sql_query("""
    SELECT REGEXP_REPLACE(s, '[aeiou]', '*') AS x, REGEXP_EXTRACT(s, '(\\w+)', 1) AS y, POSITION('l' IN s) AS p,
      LPAD(TRIM(s), 12, '-') AS lp, INITCAP(s) AS ic, REVERSE(s) AS rv, MOD(i, 3) AS m, POWER(d, 2) AS pw,
      TRUNCATE(d, 1) AS tr, IF(i > 0, 'yes', 'no') AS yn, NULLIF(i, 7) AS ni, CAST(d AS INT) AS di,
      MD5(l) AS md, s || '?' AS q, ASCII(s) AS asc_, REPEAT(l, 2) AS rp, IFNULL(s, '-') AS ifn, LEFT(s, 3) AS lf,
      d IS NOT DISTINCT FROM NULL AS dn, CASE i WHEN 7 THEN 'seven' WHEN -8 THEN 'minus' END AS ci
    FROM t
""").execute().print()
