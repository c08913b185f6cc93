"""Orders as JSON from one topic, totals of each user as JSON with keys to another one."""

import sys

from flinkish.common import Row, Types, WatermarkStrategy
from flinkish.datastream import StreamExecutionEnvironment
from flinkish.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from flinkish.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema

ORDER = Types.ROW_NAMED(["user", "price", "paid"], [Types.STRING(), Types.DOUBLE(), Types.BOOLEAN()])
TOTAL = Types.ROW_NAMED(["user", "total"], [Types.STRING(), Types.DOUBLE()])
KEY = Types.ROW_NAMED(["user"], [Types.STRING()])

if __name__ == "__main__":
    servers, source_topic, sink_topic = sys.argv[1:]
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.add_jars("file:///opt/flink/lib/flink-sql-connector-kafka-3.1.0-1.18.jar")
    reader = JsonRowDeserializationSchema.builder().type_info(ORDER).ignore_parse_errors().build()
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(servers)
        .set_topics(source_topic)
        .set_group_id("orders")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(reader)
        .build()
    )
    orders = env.from_source(source, WatermarkStrategy.no_watermarks(), "orders")
    totals = (
        orders.filter(lambda order: order.paid and order.price is not None)
        .map(lambda order: Row(user=order.user, total=order.price), output_type=TOTAL)
        .key_by(lambda row: row.user, key_type=Types.STRING())
        .reduce(lambda a, b: Row(user=a.user, total=a.total + b.total))
    )
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(sink_topic)
        .set_key_serialization_schema(JsonRowSerializationSchema.builder().with_type_info(KEY).build())
        .set_value_serialization_schema(JsonRowSerializationSchema.builder().with_type_info(TOTAL).build())
        .build()
    )
    sink = KafkaSink.builder().set_bootstrap_servers(servers).set_record_serializer(serializer)
    totals.sink_to(sink.set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE).build())
    env.execute("totals")
