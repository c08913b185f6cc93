"""The rules of windows as pure functions and small objects: no operator, no output, no clock."""
