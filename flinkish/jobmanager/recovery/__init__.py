"""When Spark's own checkpoint of a query is damaged: back to the last completed checkpoint in Delta, or refused."""
