"""The code that runs inside a task. It imports neither pyspark nor pandas: Spark and the minicluster drive the same
code."""
