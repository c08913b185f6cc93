"""``JdbcSink`` and ``JdbcSource``: PyFlink's JDBC sink, and a source of a query's rows, with Python's own drivers
(psycopg for PostgreSQL, PyMySQL for MySQL and MariaDB, sqlite3 for SQLite).

The sink goes through options -> location and dialect (URL) -> statement (SQL) -> writer (rows of an epoch) -> committer
(ONE transaction) -> database (one module per driver).
"""
