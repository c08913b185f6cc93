"""The rules of windows, as pure functions and small objects that need no operator, no output and no clock."""
