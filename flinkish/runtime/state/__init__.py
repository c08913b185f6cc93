"""Keyed and operator state, and timers: interfaces and the working representation in a worker."""
