"""What a job is to those who look at it: its states and their transitions, its description, its settings."""
