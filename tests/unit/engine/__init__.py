"""Whole programs in the minicluster: what must hold in any worker that runs several subtasks."""
