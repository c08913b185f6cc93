"""What a program means: the stream graph (operators and edges as written) and the job graph (chains, vertices, levels)."""
