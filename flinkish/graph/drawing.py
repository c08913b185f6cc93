"""Draws job graphs: as SVG, which pages and notebooks show as it is, and as a flowchart of Mermaid.

The layout is that of layered graphs: a column for each level, boxes ordered within it so that few arrows cross, and
arrows that pass a level keep a lane of their own there.

Rule: all texts of the program are escaped, and what may be a secret in them is hidden. A drawing needs nothing beside
itself: no script, no font and no style of the page; it follows the reader's choice of light or dark.
"""

from __future__ import annotations

import html
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean

from flinkish.errors import redact
from flinkish.graph.job_graph import JobGraphGenerator
from flinkish.graph.stream_graph import StreamGraph
from flinkish.runtime.job.deployment import JobDescriptor, JobSettings, VertexDescriptor

#: A longer line is cut, and whole in the box's title, which is shown under the pointer.
_MAX_CHARACTERS = 40
#: A longer chain shows only its first operators, and how many there are beside them.
_MAX_LINES = 8

#: In pixels: a character and a line of text, the space around texts, between columns, and between boxes.
_CHARACTER, _LINE, _PADDING, _BETWEEN_COLUMNS, _BETWEEN_BOXES = 6.9, 17, 10, 56, 18
#: The height of the lane of an arrow that passes a level, and the space around the drawing.
_LANE, _MARGIN = 12, 8

#: What XML cannot hold, not even as a reference.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

#: The class before each selector keeps the style off the rest of the page that the drawing is put into.
_STYLE = """
.flinkish-graph { --page: #fff; --back: #f9fafc; --line: #c4cad4; --text: #1c2430; --dim: #667085; --good: #1a7f4b;
  --busy: #c8741a; --bad: #c2282e; --held: #3b4454; font: 12px system-ui, sans-serif; background: var(--page); }
@media (prefers-color-scheme: dark) { .flinkish-graph { --page: #12161d; --back: #1b212b; --line: #4a5567;
  --text: #e4e8ef; --dim: #98a2b3; --good: #4ec98a; --busy: #e7a24a; --bad: #ff7b7b; --held: #8d97a8; } }
.flinkish-graph text { fill: var(--text); } .flinkish-graph .dim { fill: var(--dim); }
.flinkish-graph .box { fill: var(--back); stroke: var(--line); }
.flinkish-graph .edge { fill: none; stroke: var(--dim); } .flinkish-graph .head { fill: var(--dim); }
.flinkish-graph .good { fill: var(--good); } .flinkish-graph .busy { fill: var(--busy); }
.flinkish-graph .bad { fill: var(--bad); } .flinkish-graph .held { fill: var(--held); }
.flinkish-graph .label { fill: var(--dim); font-size: 10px; }
.flinkish-graph .label { paint-order: stroke; stroke: var(--page); stroke-width: 4px; }
""".replace("\n", " ")


@dataclass(frozen=True)
class Box:
    """One vertex of a job graph.

    Args:
        id: its number, by which arrows name it.
        level: the column that it stands in.
        names: its operators, a line each.
        notes: further lines, in a paler colour.
        title: what is shown under the pointer.
        busy: the share of its time that it works, from 0 to 1; None: not known.
        held: the share of its time that it is back-pressured.
    """

    id: int
    level: int
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    title: str = ""
    busy: float | None = None
    held: float = 0.0


@dataclass(frozen=True)
class Arrow:
    """One edge of a job graph, from one box to another one of a higher level."""

    source: int
    target: int
    label: str = ""


@dataclass(frozen=True)
class Drawing:
    """What is drawn of a job graph."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]

    def joined(self) -> Drawing:
        """The drawing with one arrow from a box to another one, which has the labels of all that lead there."""
        labels: dict[tuple[int, int], list[str]] = defaultdict(list)
        for arrow in self.arrows:
            labels[arrow.source, arrow.target].append(arrow.label)
        return Drawing(
            self.boxes, tuple(Arrow(*ends, ", ".join(filter(None, texts))) for ends, texts in labels.items())
        )


def drawing_of(graph: StreamGraph, chaining: bool = True) -> Drawing:
    """The drawing of a program that has not been submitted. Raises what ``graph.check()`` raises."""
    return drawing_of_job(JobGraphGenerator(graph, JobSettings(), chaining).generate("drawing", "drawing"))


def drawing_of_job(job: JobDescriptor) -> Drawing:
    """The drawing of a job graph: a box for each vertex, with its parallelism and what state it keeps."""
    arrows = (
        Arrow(vertex.id, edge.target, edge.partitioner.ship_strategy + ("" if edge.tag is None else f" [{edge.tag}]"))
        for vertex in job.vertices
        for operator in vertex.operators
        for edge in operator.edges
    )
    return Drawing(tuple(map(_box, job.vertices)), tuple(arrows))


def _box(vertex: VertexDescriptor) -> Box:
    notes = [f"parallelism {vertex.parallelism}"]
    if vertex.keyed:
        notes.append(f"keyed state, max parallelism {vertex.max_parallelism}")
    elif vertex.stateful:
        notes.append("operator state")
    uids = [f"{one.name} (uid {one.uid}{'' if one.uid_given else ', generated'})" for one in vertex.operators]
    return Box(vertex.id, vertex.level, tuple(one.name for one in vertex.operators), tuple(notes), "\n".join(uids))


# ------------------------------------------------------------------------------------------------------- Mermaid


def mermaid(drawing: Drawing) -> str:
    """The drawing as a flowchart in the language of Mermaid, which Markdown pages show in a block of it."""
    lines = ["flowchart LR"]
    for box in drawing.boxes:
        lines.append(f'  v{box.id}["{"<br/>".join(map(_of_mermaid, (*box.names, *box.notes)))}"]')
    for arrow in drawing.joined().arrows:
        label = f'|"{_of_mermaid(arrow.label)}"|' if arrow.label else ""
        lines.append(f"  v{arrow.source} -->{label} v{arrow.target}")
    return "\n".join(lines) + "\n"


def _of_mermaid(text: str) -> str:
    """The text with everything that could mean something to Mermaid, or to HTML, as the number of its character."""
    return re.sub(r"[^\w .,:()/+*=\[\]'-]", lambda found: f"#{ord(found[0])};", redact(text), flags=re.ASCII)


# ----------------------------------------------------------------------------------------------------------- SVG


def svg(drawing: Drawing) -> str:
    """The drawing as an element of SVG, which is also the content of a file."""
    joined = drawing.joined()
    layout = _Layout(joined)
    width, height = layout.width + 2 * _MARGIN, layout.height + 2 * _MARGIN
    parts = [_arrow(arrow, layout) for arrow in joined.arrows]
    parts += [_drawn(place.box, place) for place in layout.places if place.box is not None]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="flinkish-graph" role="img" aria-label="job graph" '
        f'width="{width:g}" height="{height:g}" viewBox="{-_MARGIN} {-_MARGIN} {width:g} {height:g}">'
        f"<style>{_STYLE}</style>{''.join(parts)}</svg>"
    )


@dataclass(eq=False)
class _Place:
    """Where a box stands, or the lane of an arrow in a column that it passes (without a box)."""

    box: Box | None
    height: float
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    before: list[_Place] = field(default_factory=list)
    behind: list[_Place] = field(default_factory=list)

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


class _Layout:
    """The places of all boxes, and the lanes of the arrows between them."""

    def __init__(self, drawing: Drawing) -> None:
        levels = sorted({box.level for box in drawing.boxes})
        self._columns: list[list[_Place]] = [[] for _ in levels]
        #: (source, target) -> the places that the arrow passes, with both ends
        self.ways: dict[tuple[int, int], list[_Place]] = {}
        numbers = {level: number for number, level in enumerate(levels)}
        of_box, column_of = {}, {box.id: numbers[box.level] for box in drawing.boxes}
        for box in drawing.boxes:
            of_box[box.id] = _Place(box, len(_lines(box)) * _LINE + _PADDING)
            self._columns[column_of[box.id]].append(of_box[box.id])
        for arrow in drawing.arrows:
            lanes = [_Place(None, _LANE) for _ in range(column_of[arrow.source] + 1, column_of[arrow.target])]
            for number, lane in enumerate(lanes, column_of[arrow.source] + 1):
                self._columns[number].append(lane)
            way = [of_box[arrow.source], *lanes, of_box[arrow.target]]
            for one, other in zip(way, way[1:]):
                one.behind.append(other)
                other.before.append(one)
            self.ways[arrow.source, arrow.target] = way
        self._order()
        self._set_places(drawing, column_of)

    @property
    def places(self) -> list[_Place]:
        return [place for column in self._columns for place in column]

    def _order(self) -> None:
        """Order each column by the mean place of its neighbours, from left to right and back."""
        for _ in range(3):
            for column in self._columns:
                self._sort(column, lambda place: place.before)
            for column in reversed(self._columns):
                self._sort(column, lambda place: place.behind)

    def _sort(self, column: list[_Place], neighbours_of: Callable[[_Place], list[_Place]]) -> None:
        rank = {id(place): number for one in self._columns for number, place in enumerate(one)}

        def wished(place: _Place) -> float:
            neighbours = neighbours_of(place)
            return fmean(rank[id(one)] for one in neighbours) if neighbours else rank[id(place)]

        column.sort(key=wished)

    def _set_places(self, drawing: Drawing, column_of: dict[int, int]) -> None:
        heights = [sum(one.height for one in column) + _BETWEEN_BOXES * (len(column) - 1) for column in self._columns]
        self.height, x = max(heights, default=0), 0.0
        for number, column in enumerate(self._columns):
            longest = max(len(line) for place in column if place.box for line, _ in _lines(place.box))
            width, y = longest * _CHARACTER + 2 * _PADDING, (self.height - heights[number]) / 2
            for place in column:
                place.x, place.y, place.width = x, y, width
                y += place.height + _BETWEEN_BOXES
            labels = [len(_cut(arrow.label)) for arrow in drawing.arrows if column_of[arrow.source] == number]
            self.width = x + width
            x = self.width + max(_BETWEEN_COLUMNS, *(length * _CHARACTER + 24 for length in labels), 0)


def _lines(box: Box) -> list[tuple[str, str]]:
    """The lines of a box, each with its class."""
    names = [(_cut(name), "name") for name in box.names[:_MAX_LINES]]
    if len(box.names) > _MAX_LINES:
        names.append((f"and {len(box.names) - _MAX_LINES} more", "dim"))
    return [*names, *((_cut(note), "dim") for note in box.notes)]


def _cut(text: str) -> str:
    text = redact(" ".join(text.split()))
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"


def _drawn(box: Box, place: _Place) -> str:
    texts = [
        f'<text class="{kind}" x="{_PADDING}" y="{number * _LINE + 18}">{_xml(line)}</text>'
        for number, (line, kind) in enumerate(_lines(box))
    ]
    bar = ""
    if box.busy is not None:
        share = min(1.0, max(0.0, box.busy))
        kind = "bad" if share > 0.8 else "busy" if share > 0.5 else "good"
        bar = f'<rect class="{kind}" width="{place.width * share:.1f}" height="4" rx="2"/>'
        held = place.width * min(1.0 - share, max(0.0, box.held))
        if held:
            bar += f'<rect class="held" x="{place.width * share:.1f}" width="{held:.1f}" height="4" rx="2"/>'
    return (
        f'<g transform="translate({place.x:.1f},{place.y:.1f})"><title>{_xml(redact(box.title))}</title>'
        f'<rect class="box" width="{place.width:.1f}" height="{place.height:.1f}" rx="5"/>{bar}{"".join(texts)}</g>'
    )


def _arrow(arrow: Arrow, layout: _Layout) -> str:
    way = layout.ways[arrow.source, arrow.target]
    x, y = way[0].x + way[0].width, way[0].middle
    path, label_x, label_y = f"M{x:.1f} {y:.1f}", x, y
    for number, place in enumerate(way[1:]):
        half = (place.x - x) / 2
        path += f" C{x + half:.1f} {y:.1f} {x + half:.1f} {place.middle:.1f} {place.x:.1f} {place.middle:.1f}"
        if number == 0:
            label_x, label_y = x + half, (y + place.middle) / 2
        x, y = place.x + (place.width if place.box is None else 0), place.middle
        path += f" H{x:.1f}"
    label = (
        f'<text class="label" x="{label_x:.1f}" y="{label_y - 5:.1f}" text-anchor="middle">'
        f"{_xml(_cut(arrow.label))}</text>"
    )
    head = f'<path class="head" d="M{x:.1f} {y:.1f} l-7 -3.5 v7 z"/>'
    return f'<path class="edge" d="{path}"/>{head}{label if arrow.label else ""}'


def _xml(text: str) -> str:
    return html.escape(_NOT_XML.sub("\ufffd", text))
