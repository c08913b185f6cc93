"""The state of tasks as checkpoints and savepoints hold it: columns, rows of texts, and a restore's way back."""
