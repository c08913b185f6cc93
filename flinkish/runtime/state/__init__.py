"""Keyed state, operator state and timers as a worker process holds and stores them."""
