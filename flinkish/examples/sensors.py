"""Readings of temperature sensors, which arrive through gateways; a gateway can fall silent.

A reading is a tuple of the sensor, the temperature in degrees Celsius, and the event time in ms since
1970-01-01T00:00:00Z. Some sensors are broken and report impossible temperatures.
"""

from __future__ import annotations

from typing import Any

from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.connectors.generated import NumberedSplitSource

READING = Types.TUPLE([Types.STRING(), Types.DOUBLE(), Types.LONG()])
SENSOR, CELSIUS, TS = range(3)
GATEWAYS = ("north", "south")
FIRST_TS_MS, STEP_MS = 1_700_006_400_000, 1_000


def reading(gateway: str, sensors: int, index: int) -> tuple[str, float, int]:
    """The reading with the number ``index`` of a gateway with ``sensors`` sensors. Every seventh sensor runs hot for a
    while, every eleventh one is broken."""
    number = index * 7_919 % sensors
    ts = FIRST_TS_MS + index * STEP_MS
    if number % 11 == 10:
        return f"{gateway}-{number}", -999.0, ts
    hot = 60.0 if number % 7 == 3 and index // 600 % 2 else 0.0
    return f"{gateway}-{number}", round(20 + (index * 31 + number) % 80 / 10 + hot, 1), ts


class Gateway(NumberedSplitSource):
    """A source of the readings of one gateway, which falls silent after them.

    Args:
        name: the name of the gateway.
        readings: the number of its readings.
        sensors: the number of its sensors.
        silent_epochs: the number of epochs without readings, after the last one, before the source ends.
        records_per_epoch: the most readings that an epoch reads.
        endless: whether the source is unbounded: it stays silent after its readings, but never ends.
    """

    def __init__(
        self,
        name: str,
        readings: int,
        sensors: int,
        *,
        silent_epochs: int = 0,
        records_per_epoch: int = 20_000,
        endless: bool = False,
    ) -> None:
        self._name = name
        self._readings = readings
        self._sensors = sensors
        self._silent_epochs = silent_epochs
        self._records_per_epoch = records_per_epoch
        self._endless = endless

    @property
    def bounded(self) -> bool:
        return not self._endless

    @property
    def produced_type(self) -> TypeInformation:
        return READING

    @property
    def splits(self) -> int:
        return 1

    def size_of(self, split: int) -> int | None:
        return None if self._endless else self._readings + self._silent_epochs

    def end_of_epoch(self, split: int, position: int) -> int:
        if position < self._readings:
            return min(position + self._records_per_epoch, self._readings)
        # a position without a reading: the source has not ended yet, and each epoch passes one such position
        return position if self._endless else position + 1

    def values(self, split: int, start: int, stop: int) -> list[Any]:
        return [reading(self._name, self._sensors, index) for index in range(start, min(stop, self._readings))]
