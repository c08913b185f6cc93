"""Methods of expressions."""

from flinkish.table import DataTypes, EnvironmentSettings, TableEnvironment
from flinkish.table import expressions as expr
from flinkish.table.expressions import col, lit

t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
table = t_env.from_elements(
    [(1, "Hello ", 2.25), (2, "world", -3.75), (None, None, None)],
    DataTypes.ROW(
        [
            DataTypes.FIELD("i", DataTypes.INT()),
            DataTypes.FIELD("s", DataTypes.STRING()),
            DataTypes.FIELD("x", DataTypes.DOUBLE()),
        ]
    ),
)
for columns in (
    (col("s").upper_case, col("s").lower_case, col("s").trim(), col("s").char_length),
    (col("i").cast(DataTypes.STRING()), col("x").cast(DataTypes.INT()), col("i").is_null, col("i").is_not_null),
    (col("x").abs, col("x").floor(), col("x").ceil(), col("x").round(1)),
    (col("i").between(1, 2), col("i").in_(1, 5), col("s").like("H%"), col("s").substring(2, 3)),
    ((col("i") + 1) * 2, col("x") / 2, -col("x"), col("i") % 2, lit(10) - col("i")),
    (
        expr.if_then_else(col("i") > 1, "big", "small"),
        expr.coalesce(col("s"), "none"),
        expr.concat(col("s"), "-", col("s")),
    ),
    (expr.and_(col("i") > 0, col("x") > 0), expr.or_(col("i") > 1, col("x") > 0), expr.not_(col("i") == 1)),
    (col("s").replace("l", "L"), col("s").if_null("?"), col("s").regexp_replace("[aeiou]", "*"), col("s").init_cap),
):
    for row in table.select(*columns).execute().collect():
        print(row)
