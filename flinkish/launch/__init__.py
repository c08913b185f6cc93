"""Starts a program as a Spark driver, and says what the JVM of any driver is started with.

Rule: standard library only, and one process. The driver replaces the launcher (``exec``), so signals, the exit code and
the terminal are the program's own. PySpark then calls Spark's ``bin/spark-submit`` with the options prepared here.
``spark-submit program.py`` itself puts the JVM in front of the program: it dies of SIGTERM before the running
epoch has ended, leaves the program orphaned after SIGKILL, and hides the terminal behind a pipe. Only
``--deploy-mode cluster``, where the driver runs elsewhere, goes through ``spark-submit`` directly.

A program that nobody has launched so (plain ``python``, a notebook) has its JVM started with the same options when its
first job asks for a session: ``flinkish.spark.driver_jvm``. The defaults lie in this package, as files of Spark's.
"""
