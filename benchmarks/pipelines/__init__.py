"""One module per engine, each run in its own interpreter; what it takes and prints is in `benchmarks.contract`."""
