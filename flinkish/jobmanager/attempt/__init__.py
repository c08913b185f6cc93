"""One attempt of a job: the queries that run it, and what they tell the JobManager."""
