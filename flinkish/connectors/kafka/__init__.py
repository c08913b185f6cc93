"""Kafka, read and written by confluent-kafka (librdkafka) in the workers."""
