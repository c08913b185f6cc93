"""The files through which a driver and the process of its query in a Spark server communicate (Spark Connect)."""

from __future__ import annotations

from dataclasses import dataclass

from flinkish.runtime.epoch.steps import ReportedFigures
from flinkish.storage.sealed import optional
from flinkish.storage.stored_file import StoredFile


@dataclass(frozen=True)
class StopRequest(StoredFile):
    """Asks the query in a Spark server to end before its next epoch; with ``now``: to give up the running one, too."""

    NAME = "stop.json"
    WHEN = "while the query is to end"
    READER = "the Spark Connect server"

    stop: bool = True
    now: bool = optional(False)


@dataclass(frozen=True)
class EpochsWait(StoredFile):
    """Lets epochs wait for those who read the state of an earlier one. ``token``: the driver's, which has written it;
    ``last_epoch``: the last one that may begin."""

    NAME = "wait.json"
    WHEN = "while a savepoint is read"
    READER = "the Spark Connect server"

    token: str
    last_epoch: int


@dataclass(frozen=True)
class ServerEnd(StoredFile):
    """Why the query has ended in a Spark server: Spark Connect cuts off long messages, so the text of its errors cannot
    be relied upon. ``error``: None if on purpose."""

    NAME = "far-end.json"
    WHEN = "from the end of the query on"

    token: str
    error: str | None = optional(None)


@dataclass(frozen=True, kw_only=True)
class ForDriver:
    """What an epoch gives to a subtask of a sink that commits in the driver."""

    #: the identity of the sink, and its uid when the epoch was prepared if that was another one
    sink: str
    uid: str | None = None
    subtask: int
    buffers: list[bytes]


@dataclass(frozen=True)
class ServerReport(StoredFile):
    """The report of an epoch that has run in a Spark server, with what belongs to sinks that commit in the driver."""

    NAME = "report-{:0>10}.json"
    WHEN = "until the driver has committed its part"

    report: ReportedFigures
    for_driver: list[ForDriver]
