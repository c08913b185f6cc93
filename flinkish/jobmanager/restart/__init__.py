"""Decides whether and when a job that has failed is started again. Pure: no Spark, no clock of its own."""
