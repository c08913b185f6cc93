"""The tools of the tests, where they decide what is right."""
