"""The life cycles of jobs, executions and checkpoints as tables of transitions. No Spark, and the clock is given."""
