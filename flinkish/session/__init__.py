"""Session mode: a process without Spark that shows the jobs of a folder, whoever runs them, and starts drivers.

Rule: it owns no job. Drivers do without it, before and after it; it finds them by the files of their job directories,
and what it knows more (which drivers it has started, and with what) is in files, too, so that it may be killed.
"""
