"""The Kafka source and sink, which read and write with confluent-kafka (librdkafka) in the workers."""
