"""The graphs of a program: the stream graph (operators and edges as written), the job graph (chains, vertices and
levels), and the plans that show them."""
