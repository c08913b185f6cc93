"""The driver's side of a job: its submission, its lifecycle, and what outlives it: checkpoints, savepoints, history."""
