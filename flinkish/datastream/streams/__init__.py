"""The stream classes of the API. Users import them from ``flinkish.datastream``."""
