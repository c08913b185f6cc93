"""Runs a job graph on Spark: a thin shell around ``flinkish.runtime``. A job is one streaming query, with one stage per
level of its job graph."""
