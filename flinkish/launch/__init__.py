"""Starts a program as a Spark driver, and defines the options with which the JVM of any driver is started.

Rule: this package needs only the standard library, and starts one process. The driver replaces the launcher (``exec``),
so signals, the exit code and the terminal are the program's own. PySpark then calls Spark's ``bin/spark-submit`` with
the options prepared here. ``spark-submit program.py`` would put the JVM in front of the program: the JVM dies of
SIGTERM before the running epoch has ended, leaves the program orphaned after SIGKILL, and hides the terminal behind a
pipe. Only ``--deploy-mode cluster``, where the driver runs elsewhere, uses ``spark-submit`` directly.

A program that was not started by this launcher (plain ``python``, a notebook) gets a JVM with the same options when its
first job needs a session: see ``flinkish.spark.driver_jvm``. The default settings are files of this package in Spark's
own formats.
"""
