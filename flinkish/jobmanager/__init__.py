"""The driver's side of a job: submission, its life, what outlives it."""
