"""Kafka: read by Spark's connector, written by confluent-kafka's producer in the executors."""
