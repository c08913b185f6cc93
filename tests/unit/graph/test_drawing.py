"""Job graphs as pictures: what stands where, and that no name can be anything but text."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.common import Types
from flinkish.graph.drawing import Arrow, Box, Drawing, drawing_of, mermaid, svg
from tests.support.profiles import examples
from tests.support.programs import new_environment

_SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</title></svg><script>alert(1)</script>\"'`&#\x00\x1b\ud800|]-->"


def shop() -> Drawing:
    env = new_environment(parallelism=2)
    orders = env.from_collection([1], Types.INT()).map(lambda n: n, Types.INT()).name("Parse").uid("parse")
    sums = orders.key_by(lambda n: n, Types.INT()).reduce(lambda a, b: a + b).name("Sum").uid("sum")
    sums.union(orders).rebalance().map(str, Types.STRING()).print()
    return drawing_of(env.get_stream_graph())


def rectangles(drawing: Drawing) -> list[tuple[float, float, float, float]]:
    """x, y, width and height of each box."""
    found = []
    for group in ElementTree.fromstring(svg(drawing)).iter(f"{_SVG}g"):
        x, y = map(float, re.findall(r"[\d.]+", group.attrib["transform"]))
        box = next(one for one in group.iter(f"{_SVG}rect") if one.attrib["class"] == "box")
        found.append((x, y, float(box.attrib["width"]), float(box.attrib["height"])))
    return found


def texts(drawing: Drawing) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(svg(drawing)).iter(f"{_SVG}text")]


def test_boxes_are_vertices_with_parallelism_and_state_and_arrows_have_their_ship_strategy() -> None:
    drawing = shop()
    found = [(box.level, *box.names, *box.notes) for box in drawing.boxes]
    assert found == [
        (0, "Source: Collection Source", "parallelism 1"),
        (1, "Parse", "parallelism 2"),
        (2, "Sum", "parallelism 2", "keyed state, max parallelism 128"),
        (3, "Map", "Sink: Print to Std. Out", "parallelism 2"),
    ]
    assert drawing.boxes[2].title == "Sum (uid sum)"
    assert drawing.boxes[0].title == "Source: Collection Source (uid source-collection-source-1, generated)"
    arrows = {(0, 1, "REBALANCE"), (1, 2, "HASH"), (2, 3, "REBALANCE"), (1, 3, "REBALANCE")}
    assert {(arrow.source, arrow.target, arrow.label) for arrow in drawing.arrows} == arrows
    assert set(texts(drawing)) == {text for row in found for text in row[1:]} | {"HASH", "REBALANCE"}


def test_mermaid_names_the_same() -> None:
    assert mermaid(shop()) == (
        "flowchart LR\n"
        '  v0["Source: Collection Source<br/>parallelism 1"]\n'
        '  v1["Parse<br/>parallelism 2"]\n'
        '  v2["Sum<br/>parallelism 2<br/>keyed state, max parallelism 128"]\n'
        '  v3["Map<br/>Sink: Print to Std. Out<br/>parallelism 2"]\n'
        '  v0 -->|"REBALANCE"| v1\n'
        '  v1 -->|"HASH"| v2\n'
        '  v1 -->|"REBALANCE"| v3\n'
        '  v2 -->|"REBALANCE"| v3\n'
    )


def test_several_edges_between_two_vertices_are_one_arrow_with_all_their_labels() -> None:
    boxes = tuple(Box(number, number, (str(number),)) for number in range(3))
    arrows = Arrow(0, 1, "HASH"), Arrow(1, 2, "FORWARD"), Arrow(0, 1, "REBALANCE [late]"), Arrow(0, 2)
    drawing = Drawing(boxes, arrows)
    expected = Arrow(0, 1, "HASH, REBALANCE [late]"), Arrow(1, 2, "FORWARD"), Arrow(0, 2)
    assert drawing.joined() == Drawing(boxes, expected)
    assert texts(drawing)[:2] == ["HASH, REBALANCE [late]", "FORWARD"]
    assert mermaid(drawing).endswith('v0 -->|"HASH, REBALANCE [late]"| v1\n  v1 -->|"FORWARD"| v2\n  v0 --> v2\n')


@pytest.mark.parametrize("place", ["names", "notes", "title", "label"])
def test_a_hostile_name_is_text_wherever_it_stands(place: str) -> None:
    box = {"names": (HOSTILE,)} if place == "names" else {"notes": (HOSTILE,)} if place == "notes" else {}
    title = HOSTILE if place == "title" else ""
    boxes = (Box(0, 0, **{"names": ("a",), **box}, title=title), Box(1, 1, ("b",)))
    drawing = Drawing(boxes, (Arrow(0, 1, HOSTILE if place == "label" else "HASH"),))
    root = ElementTree.fromstring(svg(drawing))
    assert {one.tag.removeprefix(_SVG) for one in root.iter()} == {"svg", "style", "g", "title", "rect", "text", "path"}
    assert any("<script>alert(1)" in (one.text or "") for one in root.iter())
    plain = r'[^"`<>&\x00\x1b]*'
    line = rf'  v\d(\["{plain}(<br/>{plain})?"\]| -->\|"{plain}"\| v1)'
    assert all(re.fullmatch(line, one) for one in mermaid(drawing).splitlines()[1:])


def test_what_may_be_a_secret_is_hidden() -> None:
    drawing = Drawing((Box(0, 0, ("jdbc://me:hunter2@db/shop",), title="password=hunter2"),), ())
    assert "hunter2" not in svg(drawing) + mermaid(drawing)


def test_long_texts_are_cut_and_long_chains_are_counted() -> None:
    found = texts(Drawing((Box(0, 0, tuple("x" * 100 for _ in range(20))),), ()))
    assert found == [*["x" * 39 + "…"] * 8, "and 12 more"]


@pytest.mark.parametrize(
    ("busy", "kind", "width"),
    [(0.25, "good", 0.25), (0.6, "busy", 0.6), (0.9, "bad", 0.9), (7, "bad", 1), (-1, "good", 0)],
)
def test_a_bar_shows_how_busy_a_vertex_is(busy: float, kind: str, width: float) -> None:
    drawing = Drawing((Box(0, 0, ("a name",), busy=busy),), ())
    bar = next(one for one in ElementTree.fromstring(svg(drawing)).iter(f"{_SVG}rect") if one.attrib["class"] != "box")
    assert bar.attrib["class"] == kind
    assert float(bar.attrib["width"]) == pytest.approx(rectangles(drawing)[0][2] * width, abs=0.1)


@pytest.mark.parametrize(("busy", "held", "width"), [(0.2, 0.5, 0.5), (0.7, 0.9, 0.3), (0.2, 0.0, 0)])
def test_back_pressure_is_drawn_behind_the_work(busy: float, held: float, width: float) -> None:
    drawing = Drawing((Box(0, 0, ("a name",), busy=busy, held=held),), ())
    bars = [one.attrib for one in ElementTree.fromstring(svg(drawing)).iter(f"{_SVG}rect")]
    found = [float(bar["width"]) for bar in bars if bar["class"] == "held"]
    whole = rectangles(drawing)[0][2]
    assert found == ([pytest.approx(whole * width, abs=0.1)] if width else [])


@st.composite
def drawings(draw: st.DrawFn) -> Drawing:
    levels = draw(st.lists(st.integers(0, 5), min_size=1, max_size=10))
    boxes = tuple(Box(number, level, ("n" * draw(st.integers(0, 50)),)) for number, level in enumerate(levels))
    possible = [(a.id, b.id) for a in boxes for b in boxes if a.level < b.level]
    ends = draw(st.lists(st.sampled_from(possible), max_size=15)) if possible else []
    return Drawing(boxes, tuple(Arrow(*pair, "HASH") for pair in ends))


@settings(max_examples=examples(60))
@given(drawings())
def test_no_box_covers_another_one_and_all_are_within_the_picture(drawing: Drawing) -> None:
    root, found = ElementTree.fromstring(svg(drawing)), rectangles(drawing)
    assert len(found) == len(drawing.boxes)
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    for x, y, w, h in found:
        assert left < x and top < y and x + w < left + width and y + h < top + height
    for number, (x, y, w, h) in enumerate(found):
        for x2, y2, w2, h2 in found[number + 1 :]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y
