"""Code that the programs in ``jobs/`` share: their input, their command line and their tables.

It belongs to the package, and not to ``jobs/``, so that workers on any cluster can import it.
"""
