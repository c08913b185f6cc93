"""A session without Spark, whose context names what a thread has Spark do, and ends it when another thread asks."""

from __future__ import annotations

from typing import Any


class GroupsOfJobs:
    """Stands for a session of Spark and for its context: the local properties of a thread, and the groups of jobs that
    were cancelled."""

    def __init__(self) -> None:
        self.properties: dict[str, str | None] = {}
        #: the groups in which something was begun, and those that were cancelled
        self.begun: list[str] = []
        self.cancelled: list[str] = []

    @property
    def sparkContext(self) -> Any:
        return self

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)

    def setLocalProperty(self, name: str, value: str | None) -> None:
        self.properties[name] = value
        if name == "spark.jobGroup.id" and value is not None:
            self.begun.append(value)

    def cancelJobGroup(self, group: str) -> None:
        self.cancelled.append(group)
