"""The connector of Amazon Kinesis: streams as sources and sinks, and delivery streams of Firehose as sinks."""
