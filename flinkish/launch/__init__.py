"""Starts a program as a Spark driver: what ``spark-submit.sh`` does once it has found a Python.

Rule: standard library only, and one process. The driver replaces the launcher (``exec``), so signals, the exit code and
the terminal are the program's own. PySpark then calls Spark's ``bin/spark-submit`` with the options prepared here.
``spark-submit program.py`` itself would put the JVM in front of the program: it dies of SIGTERM before the running
epoch has ended, leaves the program orphaned after SIGKILL, and hides the terminal behind a pipe. Only
``--deploy-mode cluster``, where the driver runs elsewhere, goes through ``spark-submit`` directly.
"""
