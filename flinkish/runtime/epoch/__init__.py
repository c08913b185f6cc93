"""The epoch as one unit: the steps from its tasks to its commit, and the files that it leaves."""
