"""Stop with drain: event time goes to its end, so that all windows and timers fire, before the last savepoint."""
