"""What operators and the tasks that run them know of each other: descriptors, contracts, contexts and reports."""
