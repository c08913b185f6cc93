"""What several rooms do together: workers that run several subtasks, epochs on request, files that are stored."""
