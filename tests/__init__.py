"""The tests of flinkish: `unit` needs no server, `integration` shares one Spark session and starts real servers."""
