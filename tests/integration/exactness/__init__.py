"""One job with everything in it, through everything that can happen to a job: its results are always the same ones."""
