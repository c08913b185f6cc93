"""Sources and sinks, one concept per file. User-visible names are re-exported at ``flinkish.datastream.connectors``.

The rule of this package: everything is picklable and importable without Spark and without the client libraries of
Kafka and databases; these are imported inside the functions that need them.
"""
