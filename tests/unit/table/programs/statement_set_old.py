"""A statement set of three inserts with a function, and EXECUTE STATEMENT SET."""

from flinkish.table import DataTypes, EnvironmentSettings, TableEnvironment
from flinkish.table.expressions import call, col, lit
from flinkish.table.udf import udf

t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
t_env.get_config().set("parallelism.default", "1")
t_env.create_temporary_system_function("shout", udf(lambda s: s.upper() + "!", result_type=DataTypes.STRING()))
table = t_env.from_elements([(1, "one", True), (2, "two", False), (3, "three", None)], ["n", "word", "flag"])
t_env.create_temporary_view("simple_source", table)
for name in ("first_sink", "second_sink", "third_sink"):
    t_env.execute_sql(f"""
        CREATE TABLE {name} (id BIGINT, data VARCHAR) WITH ('connector' = 'print', 'print-identifier' = '{name}')
    """)
stmt_set = t_env.create_statement_set()
stmt_set.add_insert("first_sink", table.select(col("n"), call("shout", col("word"))))
stmt_set.add_insert("second_sink", table.where(col("flag").is_true).select(table.n * 10, lit("x")))
stmt_set.add_insert_sql(
    "INSERT INTO third_sink SELECT n, LOWER(shout(word)) FROM simple_source WHERE n BETWEEN 2 AND 3"
)
stmt_set.execute().wait()
t_env.execute_sql("""
    EXECUTE STATEMENT SET BEGIN
      INSERT INTO first_sink SELECT n + 100, word FROM simple_source;
      INSERT INTO second_sink (id) SELECT n + 200 FROM simple_source WHERE flag IS NOT TRUE;
    END
""").wait()
