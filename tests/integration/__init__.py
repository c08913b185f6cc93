"""Tests against a real Spark, a real Kafka broker and a real PostgreSQL."""
