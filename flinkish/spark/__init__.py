"""How a job graph runs on Spark: a thin shell around ``flinkish.runtime``. One streaming query, one stage per level."""
