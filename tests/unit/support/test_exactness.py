"""The checker of results finds what was done to a golden result, that and nothing else."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.exactness import Output, Verdict, assert_exact, compare

# a lane: for each life of its state, how many outputs it makes
LANES = st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=4)


def result(lanes: list[list[int]]) -> list[Output]:
    """A golden result: lane 0, 1 ... with lives 0, 1 ... and contents that count within a life."""
    outputs = []
    for lane, lives in enumerate(lanes):
        number = 0
        for life, size in enumerate(lives):
            for count in range(1, size + 1):
                number += 1
                outputs.append(Output(f"lane{lane}", f"{lane}/{number}", number, str(life), count))
    return outputs


GOLDEN = LANES.map(result)


def interleaved(outputs: list[Output], seed: int) -> list[Output]:
    """The lanes mixed in another way; each keeps its order."""
    dice = random.Random(seed)
    lanes: dict[str, list[Output]] = {}
    for output in outputs:
        lanes.setdefault(output.lane, []).append(output)
    mixed = []
    while lanes:
        lane = dice.choice(sorted(lanes))
        mixed.append(lanes[lane].pop(0))
        if not lanes[lane]:
            del lanes[lane]
    return mixed


def has_only(golden: list[Output], actual: list[Output], verdict: Verdict, *wrong: Output) -> None:
    """The comparison finds these outputs wrong in this way, and nothing else."""
    comparison = compare(golden, actual)
    assert comparison.verdicts == {verdict}
    assert comparison.ids(verdict) == sorted(output.id for output in wrong)


@given(GOLDEN, st.integers())
def test_the_same_outputs_are_right_however_the_lanes_are_mixed(golden: list[Output], seed: int) -> None:
    comparison = compare(golden, interleaved(golden, seed))
    assert not comparison.findings, str(comparison)
    assert str(comparison).endswith("all as they should be")


@given(GOLDEN, st.integers(), st.data())
def test_dropped_outputs_are_lost(golden: list[Output], seed: int, data: st.DataObject) -> None:
    dropped = data.draw(st.sets(st.sampled_from([o.id for o in golden]), min_size=1))
    kept = interleaved([o for o in golden if o.id not in dropped], seed)
    has_only(golden, kept, Verdict.LOST, *(o for o in golden if o.id in dropped))


@given(GOLDEN, st.data())
def test_copied_outputs_are_doubled_wherever_the_copies_come(golden: list[Output], data: st.DataObject) -> None:
    copied = data.draw(st.lists(st.sampled_from(golden), min_size=1, max_size=5))
    actual = list(golden)
    for output in copied:
        actual.insert(data.draw(st.integers(actual.index(output) + 1, len(actual))), output)
    has_only(golden, actual, Verdict.DOUBLED, *copied)


@given(GOLDEN, st.integers(1, 40))
def test_the_last_outputs_delivered_once_more_as_a_whole_are_doubled(golden: list[Output], size: int) -> None:
    again = golden[-size:]
    has_only(golden, golden + again, Verdict.DOUBLED, *again)


@given(GOLDEN, st.data())
def test_two_outputs_of_a_lane_that_change_places_are_reordered(golden: list[Output], data: st.DataObject) -> None:
    pairs = [(a, b) for a in range(len(golden)) for b in range(a) if golden[a].lane == golden[b].lane]
    if not pairs:
        return
    a, b = data.draw(st.sampled_from(pairs))
    actual = list(golden)
    actual[a], actual[b] = actual[b], actual[a]
    comparison = compare(golden, actual)
    assert comparison.verdicts == {Verdict.REORDERED}
    assert set(comparison.ids(Verdict.REORDERED)) & {golden[a].id, golden[b].id}


@given(GOLDEN, st.data())
def test_only_outputs_of_one_lane_have_an_order(golden: list[Output], data: st.DataObject) -> None:
    lanes = data.draw(st.permutations(sorted({o.lane for o in golden})))
    assert not compare(golden, [o for lane in lanes for o in golden if o.lane == lane]).findings


@given(GOLDEN, st.data())
def test_outputs_made_from_state_of_an_earlier_life_are_resurrected(golden: list[Output], data: st.DataObject) -> None:
    later = [o for o in golden if o.life != "0"]
    if not later:
        return
    risen = data.draw(st.sampled_from(later))
    life = str(data.draw(st.integers(0, int(risen.life) - 1)))
    # the count goes on from where that life had ended
    actual = [replace(o, life=life, content=99) if o is risen else o for o in golden]
    has_only(golden, actual, Verdict.RESURRECTED, risen)


@given(GOLDEN, st.sampled_from(["as before", "another firing"]), st.data())
def test_a_life_that_puts_something_out_after_its_end_is_resurrected(
    golden: list[Output], how: str, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(golden) - 1))
    life = [o for o in golden if (o.lane, o.life) == (golden[place].lane, golden[place].life)]
    number = 1 + max(o.number for o in golden)
    again = replace(data.draw(st.sampled_from(life)), number=number)
    if how == "another firing":
        again = replace(again, id="one more")
    actual = list(golden)
    actual.insert(data.draw(st.integers(golden.index(life[-1]) + 1, len(golden))), again)
    has_only(golden, actual, Verdict.RESURRECTED, again)


@given(GOLDEN, st.data())
def test_a_wrong_content_of_the_right_life_is_altered(golden: list[Output], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(golden) - 1))
    actual = list(golden)
    actual[place] = replace(golden[place], content="something else")
    has_only(golden, actual, Verdict.ALTERED, golden[place])


@given(GOLDEN, st.data())
def test_an_output_that_nothing_explains_is_invented(golden: list[Output], data: st.DataObject) -> None:
    actual = list(golden)
    actual.insert(data.draw(st.integers(0, len(golden))), Output("lane0", "unheard of", 1, "no life", 1))
    assert compare(golden, actual).verdicts == {Verdict.INVENTED}
    assert compare(golden, [*golden, Output("no lane", "x", 1, "0", 1)]).verdicts == {Verdict.INVENTED}


def test_an_output_made_twice_while_its_state_lives_is_doubled_and_wrong_numbers_alone_are_altered() -> None:
    golden = result([[3]])
    assert compare(golden, [golden[0], replace(golden[0], number=2), *golden[1:]]).verdicts == {Verdict.DOUBLED}
    assert compare(golden, [*golden[:2], replace(golden[2], number=9)]).ids(Verdict.ALTERED) == [golden[2].id]


def test_different_wrongs_are_told_apart_in_one_comparison() -> None:
    golden = result([[2, 2], [3], [3], [2]])
    lane = {name: [o for o in golden if o.lane == name] for name in {o.lane for o in golden}}
    risen = replace(lane["lane0"][3], life="0")
    actual = [*lane["lane0"][:3], risen, *lane["lane1"][:2], *lane["lane2"][::-1], *lane["lane3"], *lane["lane3"]]
    comparison = compare(golden, actual)
    assert comparison.ids(Verdict.RESURRECTED) == [risen.id]
    assert comparison.ids(Verdict.LOST) == [lane["lane1"][2].id]
    assert len(comparison.ids(Verdict.REORDERED)) == 2  # one of three can stay
    assert comparison.ids(Verdict.DOUBLED) == [o.id for o in lane["lane3"]]
    assert comparison.verdicts == {Verdict.RESURRECTED, Verdict.LOST, Verdict.REORDERED, Verdict.DOUBLED}


def test_the_report_says_what_was_expected_and_quotes_only_some() -> None:
    golden = result([[40]])
    report = str(compare(golden, [*golden[:20], golden[3]]))
    assert report.splitlines()[0] == "40 outputs expected, 21 found: 20 lost, 1 doubled"
    assert "lost: 0/21 (number 21 of lane lane0, life 0): 21; it should follow 0/20" in report
    assert "lost: ... and 15 more" in report
    assert "doubled: 0/4 (number 4 of lane lane0, life 0): 4; it had come as 0/4" in report
    assert len(report.splitlines()) == 8
    with pytest.raises(AssertionError, match="20 lost, 1 doubled"):
        assert_exact(golden, [*golden[:20], golden[3]])


def test_a_golden_result_with_an_id_twice_is_refused_and_an_empty_one_is_not() -> None:
    golden = result([[2]])
    with pytest.raises(ValueError, match="occur twice"):
        compare([*golden, golden[0]], golden)
    assert_exact([], [])
