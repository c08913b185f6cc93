"""One module per engine, each run in its own interpreter; `benchmarks.contract` defines their options and output."""
