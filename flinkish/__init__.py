"""flinkish runs Flink DataStream programs, written in Python, on Spark Structured Streaming."""

__version__ = "0.1.0"
