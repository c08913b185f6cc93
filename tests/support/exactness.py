"""What a job has put out against what it should have: lost, doubled, reordered and resurrected records told apart.

An output has a lane in which order counts, an id that occurs once in the golden result, a number that the job gives
to the outputs of a lane from state that is never cleared, and the name of the life of the state it was made from. A
life begins when state is born and is over with its last golden output: whatever comes from it afterwards has risen
from the dead. The number tells an output that was *delivered* twice (a copy) from one that was *made* twice.

This module is pure: it knows nothing of jobs, sinks or Spark.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

#: How many findings of each kind a report quotes.
QUOTED = 5


class Verdict(Enum):
    """What is wrong with an output."""

    LOST = "lost"
    DOUBLED = "doubled"
    REORDERED = "reordered"
    RESURRECTED = "resurrected"
    #: the right id, but made from wrong state that no earlier life explains
    ALTERED = "altered"
    #: an id that the golden result does not have, from no life that was over
    INVENTED = "invented"


@dataclass(frozen=True)
class Output:
    """One record of a sink."""

    lane: str
    id: str
    number: int
    life: str
    content: Hashable

    def __str__(self) -> str:
        return f"{self.id} (number {self.number} of lane {self.lane}, life {self.life}): {self.content!r}"


@dataclass(frozen=True)
class Finding:
    """One output that is not as it should be."""

    verdict: Verdict
    lane: str
    id: str
    what: str

    def __str__(self) -> str:
        return f"{self.verdict.value}: {self.what}"


@dataclass(frozen=True)
class Comparison:
    """All that is wrong; nothing, if both are the same."""

    findings: tuple[Finding, ...]
    expected: int
    found: int

    @property
    def verdicts(self) -> frozenset[Verdict]:
        """The kinds of what is wrong."""
        return frozenset(finding.verdict for finding in self.findings)

    def ids(self, verdict: Verdict) -> list[str]:
        """The outputs of this verdict, sorted."""
        return sorted(finding.id for finding in self.findings if finding.verdict is verdict)

    def __str__(self) -> str:
        by_verdict = {verdict: [f for f in self.findings if f.verdict is verdict] for verdict in Verdict}
        summary = ", ".join(f"{len(found)} {verdict.value}" for verdict, found in by_verdict.items() if found)
        lines = [f"{self.expected} outputs expected, {self.found} found: {summary or 'all as they should be'}"]
        for verdict, found in by_verdict.items():
            lines.extend(f"  {finding}" for finding in found[:QUOTED])
            if len(found) > QUOTED:
                lines.append(f"  {verdict.value}: ... and {len(found) - QUOTED} more")
        return "\n".join(lines)


def compare(golden: Iterable[Output], actual: Iterable[Output]) -> Comparison:
    """Compare two results. Their order counts within each lane only.

    >>> a1, a2 = Output("a", "x", 1, "1", 1), Output("a", "y", 2, "1", 2)
    >>> print(compare([a1, a2], [a2, a1]))
    2 outputs expected, 2 found: 1 reordered
      reordered: y (number 2 of lane a, life 1): 2 came before x, which should come first
    """
    expected, found = list(golden), list(actual)
    _check_golden(expected)
    wanted, got = _by_lane(expected), _by_lane(found)
    findings: list[Finding] = []
    for lane in sorted(wanted.keys() | got.keys()):
        findings.extend(_Lane(lane, wanted.get(lane, [])).findings(got.get(lane, [])))
    return Comparison(tuple(findings), len(expected), len(found))


def assert_exact(golden: Iterable[Output], actual: Iterable[Output]) -> None:
    """AssertionError with the report, unless both are the same."""
    comparison = compare(golden, actual)
    assert not comparison.findings, str(comparison)


def _by_lane(outputs: Iterable[Output]) -> dict[str, list[Output]]:
    lanes: dict[str, list[Output]] = defaultdict(list)
    for output in outputs:
        lanes[output.lane].append(output)
    return lanes


def _check_golden(golden: Sequence[Output]) -> None:
    twice = [identity for identity, count in Counter(output.id for output in golden).items() if count > 1]
    if twice:
        raise ValueError(f"the golden result has ids that occur twice: {twice[:QUOTED]}")


class _Lane:
    """The golden outputs of one lane, and a walk over the actual ones."""

    def __init__(self, name: str, golden: Sequence[Output]) -> None:
        self._name = name
        self._golden = golden
        self._places = {output.id: place for place, output in enumerate(golden)}
        #: life -> its rank
        self._ranks = {life: rank for rank, life in enumerate(dict.fromkeys(output.life for output in golden))}
        #: life -> what is still to come of it
        self._to_come = Counter(output.life for output in golden)
        self._reached = -1
        self._first: dict[str, Output] = {}

    def findings(self, actual: Sequence[Output]) -> list[Finding]:
        found: list[Finding] = []
        for output in actual:
            verdict = self._verdict(output)
            if verdict is not None:
                found.append(self._finding(verdict, output))
        # what was not put out at all shifts nothing: numbers are compared where all else is right
        lost = [output for output in self._golden if output.id not in self._first]
        found.extend(self._finding(Verdict.LOST, output) for output in lost)
        found.extend(self._reordered())
        return found or self._wrong_numbers(actual)

    def _verdict(self, output: Output) -> Verdict | None:
        if output.id not in self._places:
            return Verdict.RESURRECTED if self._is_over(output.life) else Verdict.INVENTED
        if output.id in self._first:
            made_again = output != self._first[output.id]
            return Verdict.RESURRECTED if made_again and self._is_over(output.life) else Verdict.DOUBLED
        golden = self._golden[self._places[output.id]]
        was_over = self._is_over(output.life)
        self._first[output.id] = output
        self._to_come[golden.life] -= 1
        if output.life != golden.life:
            older = self._ranks.get(output.life, len(self._ranks)) < self._ranks[golden.life]
            return Verdict.RESURRECTED if older or was_over else Verdict.ALTERED
        self._reached = max(self._reached, self._ranks[golden.life])
        return None if output.content == golden.content else Verdict.ALTERED

    def _is_over(self, life: str) -> bool:
        """Whether all of this life should have been seen by now."""
        if life not in self._ranks:
            return False
        return self._ranks[life] < self._reached or self._to_come[life] == 0

    def _reordered(self) -> list[Finding]:
        """The fewest outputs that would have to move."""
        came = [self._places[identity] for identity in self._first]
        staying = set(_longest_rising(came))
        ordered = sorted(staying)
        found = []
        for at, place in enumerate(came):
            if place in staying:
                continue
            before = [p for p in ordered if p < place and p in came[at:]]
            output = self._first[self._golden[place].id]
            if before:
                what = f"{output} came before {self._golden[before[0]].id}, which should come first"
            else:
                what = f"{output} came behind outputs that should follow it"
            found.append(Finding(Verdict.REORDERED, self._name, output.id, what))
        return found

    def _wrong_numbers(self, actual: Sequence[Output]) -> list[Finding]:
        wrong = [(a, g) for a, g in zip(actual, self._golden) if a.number != g.number]
        return [Finding(Verdict.ALTERED, self._name, a.id, f"{a} should have the number {g.number}") for a, g in wrong]

    def _finding(self, verdict: Verdict, output: Output) -> Finding:
        what = str(output)
        place = self._places.get(output.id)
        if verdict is Verdict.LOST and place:
            what += f"; it should follow {self._golden[place - 1].id}"
        elif verdict is Verdict.DOUBLED or self._first.get(output.id, output) is not output:
            what += f"; it had come as {self._first[output.id]}"
        elif verdict in (Verdict.ALTERED, Verdict.RESURRECTED) and place is not None:
            what += f"; it should be {self._golden[place]}"
        elif verdict is Verdict.RESURRECTED:
            what += "; that life was over"
        return Finding(verdict, self._name, output.id, what)


def _longest_rising(numbers: Sequence[int]) -> list[int]:
    """A longest rising part of a sequence of different numbers."""
    ends: list[int] = []
    end_places: list[int] = []
    before: list[int | None] = []
    for place, number in enumerate(numbers):
        at = bisect_left(ends, number)
        before.append(end_places[at - 1] if at else None)
        ends[at : at + 1] = [number]
        end_places[at : at + 1] = [place]
    result: list[int] = []
    place_or_none = end_places[-1] if end_places else None
    while place_or_none is not None:
        result.append(numbers[place_or_none])
        place_or_none = before[place_or_none]
    return result[::-1]
