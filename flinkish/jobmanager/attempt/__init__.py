"""One attempt of a job: the Spark queries that run it, and what they report to the JobManager."""
