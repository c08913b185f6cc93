"""The job directory: the files that a job keeps in it, and which driver owns it."""
