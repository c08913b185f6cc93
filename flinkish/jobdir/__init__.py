"""A job's directory: what lies in it, who owns it, the log of its query, and the epoch that waits to be committed."""
