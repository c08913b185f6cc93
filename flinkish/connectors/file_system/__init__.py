"""Files as a source (Spark lists and reads them) and as a sink (one file per bucket, subtask and epoch)."""
