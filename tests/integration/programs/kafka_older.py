"""Kafka to Kafka with the consumer and producer of Flink 1.x, without a group, with properties of Java's client."""

import json
import sys

from flinkish.common.serialization import SimpleStringSchema
from flinkish.common.typeinfo import Types
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.datastream.connectors import FlinkKafkaConsumer, FlinkKafkaProducer

if __name__ == "__main__":
    servers, source_topic, sink_topic = sys.argv[1:]
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    properties = {"bootstrap.servers": servers, "auto.offset.reset": "earliest", "max.poll.records": "500"}
    consumer = FlinkKafkaConsumer(source_topic, SimpleStringSchema(), properties)
    producer = FlinkKafkaProducer(sink_topic, SimpleStringSchema(), {"bootstrap.servers": servers})

    def total(text):
        try:
            order = json.loads(text)
            return f"{order['user']} ordered for {order['price']}"
        except ValueError:
            return None

    texts = env.add_source(consumer).map(total, output_type=Types.STRING())
    texts.filter(lambda text: text is not None).add_sink(producer)
    env.execute("older kafka")
