"""Events of Nexmark: persons, auctions and bids of an online auction, the same ones each time.

Of 50 events one is a person, three are auctions, and 46 are bids, as in Nexmark's generator; some are out of order.
This module needs nothing but Python, so that Flink gets the same events.
"""

from __future__ import annotations

import datetime
import random
from typing import Any

START = datetime.datetime(2024, 2, 28, 23, 50)
CHANNELS = ("Apple", "Google", "Facebook", "Baidu", "channel-7", "channel-12")
_CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland")
_STATES = ("AZ", "CA", "CA", "ID", "OR")


def events(count: int) -> list[list[Any]]:
    """Events as rows of ``event_type INT, person ROW, auction ROW, bid ROW``, of which two are None."""
    dice = random.Random(55)
    made: list[list[Any]] = []
    for number in range(count):
        time = START + datetime.timedelta(milliseconds=number * 937 - dice.choice((0, 0, 0, 900, 3_500, 6_000)))
        stamp = time.isoformat(" ", "milliseconds")
        extra = "".join(dice.choices("abcdefghijkl", k=dice.randint(3, 12)))
        place = number % 50
        if place == 0:
            made.append([0, _person(dice, number, stamp, extra), None, None])
        elif place < 4:
            made.append([1, None, _auction(dice, number, time, extra), None])
        else:
            made.append([2, None, None, _bid(dice, number, stamp, extra)])
    return made


def _person(dice: random.Random, number: int, stamp: str, extra: str) -> dict[str, Any]:
    at = dice.randrange(5)
    card = " ".join(f"{dice.randrange(10_000):04}" for _ in range(4))
    values = (1_000 + number // 50, f"vicky {at}", f"v{at}@xy.com", card, _CITIES[at], _STATES[at], stamp, extra)
    return dict(zip("id name emailAddress creditCard city state dateTime extra".split(), values, strict=True))


def _auction(dice: random.Random, number: int, time: datetime.datetime, extra: str) -> dict[str, Any]:
    stamps = [(time + datetime.timedelta(seconds=s)).isoformat(" ", "milliseconds") for s in (0, dice.randint(1, 600))]
    first = dice.randint(1, 10_000)
    values = (1_000 + number // 17, "item", "text", first, first * 2, *stamps, 1_000 + number // 50, 10, extra)
    names = "id itemName description initialBid reserve dateTime expires seller category extra"
    return dict(zip(names.split(), values, strict=True))


def _bid(dice: random.Random, number: int, stamp: str, extra: str) -> dict[str, Any]:
    channel = dice.choice(CHANNELS)
    url = f"https://www.nexmark.com/{dice.choice('abc')}/{dice.choice('xyz')}{number % 7}/item.htm?query=1"
    if dice.random() < 0.6:
        url += f"&channel_id={dice.randrange(1_000)}"
    price = int(100 * 10 ** dice.uniform(0, 6))
    values = (1_000 + dice.randrange(number // 17 + 1), 1_000 + dice.randrange(20), price, channel, url, stamp, extra)
    return dict(zip("auction bidder price channel url dateTime extra".split(), values, strict=True))
