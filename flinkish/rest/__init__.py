"""The driver seen and steered over HTTP: Flink's monitoring REST API, its Web UI, and a page of our own."""
