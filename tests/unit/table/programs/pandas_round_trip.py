"""From a DataFrame to a table, and back."""

import pandas as pd

from flinkish.table import DataTypes, EnvironmentSettings, TableEnvironment
from flinkish.table.expressions import col

t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
t_env.get_config().set("parallelism.default", "1")
frame = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5], "c": ["x", "y", "z"]})
table = t_env.from_pandas(
    frame,
    DataTypes.ROW(
        [
            DataTypes.FIELD(n, t)
            for n, t in [("a", DataTypes.BIGINT()), ("b", DataTypes.DOUBLE()), ("c", DataTypes.STRING())]
        ]
    ),
)
back = table.filter(col("a") > 1).select(col("a") * 2, col("b"), col("c")).to_pandas()
for values in back.values.tolist():
    print(values)
print(back.shape)
