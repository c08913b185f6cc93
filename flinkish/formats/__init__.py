"""Formats of records: JSON, CSV and Avro messages, and Parquet, ORC, CSV and Avro files. This package imports nothing
of flinkish but ``errors`` and ``common``."""
