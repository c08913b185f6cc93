"""The word count of PyFlink's examples, with flat_map of a stream and group_by of a table."""

from flinkish.common import Row
from flinkish.table import DataTypes, EnvironmentSettings, Schema, TableDescriptor, TableEnvironment
from flinkish.table.expressions import col, lit
from flinkish.table.udf import udf

words = ["To be, or not to be,--that is the question:--", "Whether 'tis nobler in the mind to suffer"]
t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
t_env.get_config().set("parallelism.default", "1")
tab = t_env.from_elements(
    ((w,) for w in " ".join(words).lower().split()), DataTypes.ROW([DataTypes.FIELD("line", DataTypes.STRING())])
)
t_env.create_temporary_table(
    "sink",
    TableDescriptor.for_connector("print")
    .schema(Schema.new_builder().column("word", DataTypes.STRING()).column("count", DataTypes.BIGINT()).build())
    .build(),
)


@udf(result_type=DataTypes.ROW([DataTypes.FIELD("w", DataTypes.STRING()), DataTypes.FIELD("n", DataTypes.INT())]))
def clean(line: Row):
    return Row(line[0].strip(",:-'"), len(line[0]))


tab.map(clean).alias("word", "n").filter(col("word") != "").group_by(col("word")).select(
    col("word"), lit(1).count
).execute_insert("sink").wait()
tab.map(clean).group_by(col("n")).select(col("n"), col("w").count.alias("c"), col("w").max).where(
    col("c") > 1
).execute().print()
