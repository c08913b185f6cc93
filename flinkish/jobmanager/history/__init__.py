"""The history of a job as Delta tables, which outlive the driver."""
