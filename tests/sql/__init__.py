"""Recorded answers of Flink SQL, and the script that records them."""
