"""The lives of jobs, executions and checkpoints as tables of transitions. Pure: no Spark, and the clock is given."""
