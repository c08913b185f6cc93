"""The engine on Spark: whole jobs, held against the minicluster, against restarts and against faults."""
