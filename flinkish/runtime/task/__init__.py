"""The tasks of a worker: they run chains of operators over an epoch, and keep their state between epochs."""
