"""What each epoch reads: splits, their assignment to subtasks, their positions (Flink's SourceCoordinator). Pure."""
