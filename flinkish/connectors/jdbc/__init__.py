"""``JdbcSink``: PyFlink's JDBC sink with Python's own drivers: psycopg for PostgreSQL, sqlite3 for SQLite.

options -> location (URL) -> statement (SQL) -> writer (rows of an epoch) -> committer (ONE transaction) -> database
(one module per driver)
"""
