"""The streams of the API, one class a file; users import them from ``flinkish.datastream``."""
