"""Recovery from a damaged checkpoint of the Spark query: back to the last completed checkpoint in Delta, or refused."""
