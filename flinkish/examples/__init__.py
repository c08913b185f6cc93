"""What the programs in ``jobs/`` share: their input, their command line, their tables.

A part of the package, and not of ``jobs/``, so that workers on any cluster can import it.
"""
