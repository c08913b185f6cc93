"""The whole engine in one process, without Spark, for tests and for trying things out (Flink's MiniCluster)."""

from flinkish.minicluster.mini_cluster import MiniCluster, StateStore

__all__ = ["MiniCluster", "StateStore"]
