"""Two inserts of one table as one job."""

import os
import tempfile

from flinkish.table import DataTypes, EnvironmentSettings, FormatDescriptor, Schema, TableDescriptor, TableEnvironment
from flinkish.table.expressions import col

t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
t_env.get_config().set("parallelism.default", "1")
table = t_env.from_elements([(1, "Hello"), (2, "World"), (3, "Flink"), (4, "PyFlink")], ["id", "data"])
folder = tempfile.mkdtemp()
schema = Schema.new_builder().column("id", DataTypes.BIGINT()).column("data", DataTypes.STRING()).build()
for name in ("first_sink", "second_sink"):
    t_env.create_temporary_table(
        name,
        TableDescriptor.for_connector("filesystem")
        .schema(schema)
        .option("path", os.path.join(folder, name))
        .format(FormatDescriptor.for_format("csv").build())
        .build(),
    )
t_env.create_temporary_view("v", table)
statements = t_env.create_statement_set()
statements.add_insert("first_sink", table.where(col("id") <= 2))
statements.add_insert_sql("INSERT INTO second_sink SELECT id * 10, data FROM v WHERE id > 2")
statements.execute().wait()
for name in ("first_sink", "second_sink"):
    for directory, _, files in os.walk(os.path.join(folder, name)):
        for file in files:
            with open(os.path.join(directory, file)) as lines:
                for line in lines:
                    print(name, line.strip())
