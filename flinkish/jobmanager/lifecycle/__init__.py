"""The states of jobs, executions and checkpoints: one transition table each. Pure: no Spark, no clock of its own."""
