"""Where files are kept: paths and their file systems, how each store writes and lists, and JSON files that are sealed
against damage."""
