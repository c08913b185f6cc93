"""Plans what each epoch reads: splits, their assignment to subtasks, and their positions (Flink's SourceCoordinator).
It imports neither pyspark nor pandas."""
