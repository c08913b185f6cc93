"""What ``flinkish doctor`` looks at before somebody else has to: versions, jars, the job directory as each process sees
it, executors, clocks, modes of files, and the REST API of a running job.

Rule: facts are collected in `machine` and `spark`; what they mean is decided in `findings`, by functions of the facts
alone. A look never changes a job: what is written to a job directory lies in a folder of its own, which is deleted.
"""
