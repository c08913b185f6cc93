"""The request that ``flinkish replay`` passes to the program that it starts. It travels in an environment variable, so
that the program has exactly the settings with which it ran before."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from flinkish.errors import ConfigurationError, redact
from flinkish.launch.spark_command import ROOT
from flinkish.storage.sealed import json_as

#: The environment variable that holds the request as JSON.
VARIABLE = "FLINKISH_REPLAY"

#: The number of records that are shown of each input and output of a subtask, unless the request says otherwise.
DEFAULT_LIMIT = 20


@dataclass(frozen=True)
class ReplayRequest:
    """The parameters of one call of ``flinkish replay``.

    Args:
        directory: the job directory.
        epoch: the epoch to replay.
        subtask: ``uid/index`` of the only subtask that is shown, and in which breakpoints take effect; "": all.
        pdb: whether the debugger opens where the epoch fails.
        limit: the number of records that are shown of each input and output.
        json: whether the report is printed as JSON.
    """

    directory: str
    epoch: int
    subtask: str = ""
    pdb: bool = False
    limit: int = DEFAULT_LIMIT
    json: bool = False

    def variables(self) -> dict[str, str]:
        """The environment variables for the process that is to carry out the request."""
        return {VARIABLE: json.dumps(asdict(self))}


def replay_command(directory: str, epoch: int) -> str:
    """The command that runs an epoch of this program again; "" if the program is no file, as in a notebook."""
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    if program is None or program.startswith(os.path.join(ROOT, "flinkish", "")):
        return ""
    return redact(shlex.join(["flinkish", "replay", directory, "--epoch", str(epoch), program, *sys.argv[1:]]))


def requested_replay(environment: Mapping[str, str] | None = None) -> ReplayRequest | None:
    """The request in ``environment`` (default: that of this process); None if the process is not a replay.

    Raises:
        ConfigurationError: the variable holds something else.
    """
    text = (os.environ if environment is None else environment).get(VARIABLE)
    try:
        return json_as(ReplayRequest, text) if text else None
    except ValueError as error:
        raise ConfigurationError(
            f"{VARIABLE}={text!r:.200} is no request for a replay: {error}",
            where=f"the environment variable {VARIABLE}",
            expected="what `flinkish replay` sets",
            hint="unset it, and use the command `flinkish replay`",
        ) from error
