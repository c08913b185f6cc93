"""What ``flinkish replay`` asks of the program that it starts: it travels in the environment of the program's process,
so that the program is the same to the last setting as when it ran."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass

#: Environment variable with the request, as JSON.
VARIABLE = "FLINKISH_REPLAY"

#: So many records of each input and output of a subtask are shown.
DEFAULT_LIMIT = 20


@dataclass(frozen=True)
class ReplayRequest:
    """One call of the command.

    Args:
        directory: the job directory.
        epoch: the epoch.
        subtask: ``uid/index`` of the only subtask that is shown, and in which breakpoints hold; "": all.
        pdb: after a failure the debugger shows where it happened.
        limit: how many records of each input and output are shown.
        json: the report is JSON.
    """

    directory: str
    epoch: int
    subtask: str = ""
    pdb: bool = False
    limit: int = DEFAULT_LIMIT
    json: bool = False

    def variables(self) -> dict[str, str]:
        """The environment of a process that is to carry it out."""
        return {VARIABLE: json.dumps(asdict(self))}


def requested_replay(environment: Mapping[str, str] | None = None) -> ReplayRequest | None:
    """The request that this process was started with."""
    text = (os.environ if environment is None else environment).get(VARIABLE)
    return ReplayRequest(**json.loads(text)) if text else None
