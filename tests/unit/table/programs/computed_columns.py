"""A table with columns that are computed, through a descriptor."""

import os
import tempfile

from flinkish.table import DataTypes, EnvironmentSettings, FormatDescriptor, Schema, TableDescriptor, TableEnvironment
from flinkish.table.expressions import col

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "a.csv"), "w") as file:
    file.write("3,1.25\n4,2.5\n")
t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
t_env.create_table(
    "orders",
    TableDescriptor.for_connector("filesystem")
    .schema(
        Schema.new_builder()
        .column("qty", DataTypes.INT())
        .column("price", DataTypes.DOUBLE())
        .column_by_expression("total", "qty * price")
        .build()
    )
    .option("path", folder)
    .format(FormatDescriptor.for_format("csv").build())
    .build(),
)
for row in t_env.from_path("orders").select(col("total"), col("qty")).execute().collect():
    print(row)
