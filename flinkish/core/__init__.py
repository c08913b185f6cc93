"""The contracts between user code and the engine: functions, state, windows, timers.

Depends on nothing but ``common``.
"""
