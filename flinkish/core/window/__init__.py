"""Windows, assigners and triggers: what says which elements belong together, and when they are evaluated.

One assigner or trigger a file. The names for users are re-exported by ``flinkish.datastream.window``.
"""
