"""What a program means: stream graph (operators and edges as written), job graph (chains, vertices, levels), plans."""
