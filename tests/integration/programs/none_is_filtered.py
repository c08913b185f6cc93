"""A map gives None for what it cannot read, and the next step drops it."""

import json

from flinkish.common import Types
from flinkish.datastream import StreamExecutionEnvironment


def parse(text):
    try:
        order = json.loads(text)
        return order["user"], float(order["price"])
    except (ValueError, KeyError):
        return None


def show(order):
    SEEN.append(order)  # a map that is used as a sink returns nothing


SEEN = []

if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    texts = ['{"user": "ann", "price": 3}', "no json", '{"user": "bob"}', '{"user": "ann", "price": "4.5"}']
    orders = env.from_collection(texts, Types.STRING()).map(parse).filter(lambda order: order is not None)
    orders.map(show)
    totals = orders.key_by(lambda order: order[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    totals.map(lambda total: f"{total[0]}: {total[1]:.2f}", output_type=Types.STRING()).print()
    env.execute()
