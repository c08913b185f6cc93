"""The console command ``flinkish``: Flink's command line, and what flinkish has beside it.

Rule: these modules only read the command line and show what they are told; what the commands do is implemented in other
rooms. Each module of commands has ``add_commands``, which adds their parsers; each parser sets the default
``carry_out``, the function that takes the parsed arguments, runs the command and returns its exit code.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the console script and return its exit code. ``argv`` (default: the process's) does not contain the name of
    the command."""
    # imported late, for `python -m flinkish.cli` to run the module once
    from flinkish.cli.__main__ import main as run

    return run(argv)
