"""What each epoch reads: splits, their assignment to subtasks, and their positions (Flink's SourceCoordinator). Pure."""
