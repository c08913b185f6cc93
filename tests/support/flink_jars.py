"""The jars of Flink that tests use: its command line, which has the classes of its REST messages with it."""

from __future__ import annotations

from tests.support.ivy import Coordinate, JarSet

#: What the command lines need is without these; 1.20's also needs what that of 2.3 does not.
_NOT_NEEDED = (
    *("flink-rpc-akka-loader", "flink-rpc-akka", "flink-hadoop-fs", "flink-queryable-state-client-java"),
    *("snappy-java", "lz4-java", "async-profiler"),
)
#: Of 2.3, and with it that by which Flink aggregates the figures of subtasks.
FLINK = JarSet(
    "flink",
    (
        Coordinate("org.apache.flink", "flink-clients", "2.3.0"),
        Coordinate("org.apache.commons", "commons-math3", "3.6.1"),
    ),
    (*_NOT_NEEDED, "flink-java", "flink-table-api-java"),
)
FLINK_1 = JarSet("flink-clients", (Coordinate("org.apache.flink", "flink-clients", "1.20.3"),), _NOT_NEEDED)
