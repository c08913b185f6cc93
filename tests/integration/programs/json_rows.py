"""Maps over JSON in the fields of rows: what is printed of Rows, booleans, numbers and lists."""

import json

from flinkish.common import Row, Types
from flinkish.datastream import StreamExecutionEnvironment

DATA = [
    (1, '{"name": "Flink", "tel": 123, "addr": {"country": "Germany", "city": "Berlin"}}'),
    (2, '{"name": "hello", "tel": 135, "addr": {"country": "China", "city": "Shanghai"}}'),
    (3, '{"name": "world", "tel": 124, "addr": {"country": "USA", "city": "NewYork"}}'),
]


def update_tel(row):
    info = json.loads(row.info)
    info["tel"] += 1
    return Row(row.id, json.dumps(info))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    rows = env.from_collection(DATA, type_info=Types.ROW_NAMED(["id", "info"], [Types.INT(), Types.STRING()]))
    rows.map(update_tel, output_type=Types.ROW([Types.INT(), Types.STRING()])).print()
    rows.map(lambda row: (row[0] > 1, row[0] / 4, json.loads(row.info)["addr"]["city"])).print()
    mixed = Types.ROW_NAMED(
        ["big", "ok", "share", "tags"],
        [Types.LONG(), Types.BOOLEAN(), Types.DOUBLE(), Types.LIST(Types.STRING())],
    )
    rows.map(lambda row: Row(10**12, row.id != 2, row.id * 1e10, ["x", "y"][: row.id]), output_type=mixed).print()
    env.execute("process_json_data")
