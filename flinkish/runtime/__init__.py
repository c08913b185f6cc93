"""What happens inside a task. Pure: no pyspark, no pandas; Spark and the minicluster drive the same code."""
