"""Windows, assigners, triggers and evictors: which elements belong together, and when they are evaluated.

There is one assigner, trigger or evictor per file. The names for users are re-exported by
``flinkish.datastream.window``.
"""
