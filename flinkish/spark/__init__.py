"""Runs a job graph on Spark: a thin shell around ``flinkish.runtime``. A job is one streaming query, with one stage per
level of its job graph."""

from flinkish.launch.spark_version import spark_version

# whoever imports this package runs on Spark: without PySpark, the error says what to install
spark_version()
