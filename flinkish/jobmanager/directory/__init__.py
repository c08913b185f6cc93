"""What a job keeps in its directory, and who owns it."""
