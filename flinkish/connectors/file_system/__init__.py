"""Files as a source (each file is a split) and as a sink (one file per bucket, subtask and epoch)."""
