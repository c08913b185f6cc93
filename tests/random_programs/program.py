"""A random program: which operators it has, its input, and the text that is made of both.

Everything is chosen by a seed. An operator is a `Step`, which has a seed of its own, so a program from which steps are
taken away (`smaller`) is otherwise the same.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from tests.random_programs.kinds import KINDS, Kind, Order, StreamInfo, Text
from tests.random_programs.shapes import Shape, random_shape


@dataclass(frozen=True)
class Step:
    """An operator: its kind, and the streams that it reads, as numbers of `Program.streams`."""

    number: int
    kind: Kind
    inputs: tuple[str, str]
    seed: int


#: A record, or a mark: None is the end of an epoch, a number a watermark, "idle" lasts until the next record, and
#: behind "split" comes the next split of the source.
Element = tuple[int, str, int] | int | str | None


@dataclass(frozen=True)
class Input:
    """A source: its records as (time in ms, key, number), and what is between them.

    Args:
        form: marks (a TestingSource); splits (one with several splits, each of which has keys of its own); bare (one
            whose records have no time); idle (one whose records are followed by watermarks); generated,
            paged, lines: its records are made by a function, with consecutive numbers, of one object that is changed
            each time.
    """

    name: str
    shape: Shape
    keys: str
    elements: tuple[Element, ...]
    form: str = "marks"

    @property
    def records(self) -> int:
        return sum(isinstance(element, tuple) for element in self.elements)


@dataclass(frozen=True)
class Program:
    """A program, whose text is `source`.

    Args:
        apart: whether only one source has records in each epoch.
        restarts: the epochs in which the job fails, and at which phase, or "BETWEEN" epochs; "RESTORE_3": before the
            epoch another job begins with a savepoint of this one, with a parallelism of 3.
    """

    parallelism: int
    late: bool
    apart: bool
    restarts: tuple[tuple[int, str], ...]
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    #: streams that have a sink though operators read them
    sinks: frozenset[str] = frozenset()

    @cached_property
    def texts(self) -> list[Text]:
        """The texts of the steps. Raises KeyError if a step reads a stream that is not there, and ValueError if model
        and flinkish need not agree on it."""
        streams = self._of_sources()
        texts = []
        for step in self.steps:
            first, second = (streams[name] for name in step.inputs)
            if not step.kind.possible(first, second, self.parallelism):
                raise ValueError(f"{step.kind.name} is not possible behind {first} and {second}")
            text = Text(f"s{step.number}", random.Random(step.seed), self.parallelism)
            step.kind.write(text, first, second)
            streams.update({info.name: info for info in text.outputs})
            texts.append(text)
        return texts

    def _of_sources(self) -> dict[str, StreamInfo]:
        return {
            one.name: StreamInfo(
                one.name,
                one.shape,
                Order.KEYED if one.form == "splits" else Order.TOTAL,
                exact=one.form in ("marks", "idle"),
                # without times no operator is possible that depends on them
                late=self.late or one.form == "bare",
                keys=frozenset(one.keys),
                size=one.records,
                origins=frozenset([one.name]),
                apart=self.apart,
                idles=one.form == "idle",
                # it is not known which pages an epoch reads
                clocked=one.form == "paged",
            )
            for one in self.inputs
        }

    @property
    def streams(self) -> dict[str, StreamInfo]:
        outputs = {info.name: info for text in self.texts for info in text.outputs}
        return {**self._of_sources(), **outputs}

    @property
    def sunk(self) -> dict[str, StreamInfo]:
        """The streams that have a sink: those that nobody reads, and some others."""
        read = {name for step in self.steps for name in step.inputs[: step.kind.inputs]}
        return {name: info for name, info in self.streams.items() if name not in read or name in self.sinks}

    @property
    def source(self) -> str:
        """The text of the program."""
        restarts = ", ".join(f"{phase} {epoch}" for epoch, phase in self.restarts)
        lines = [f"# parallelism: {self.parallelism}", *([f"# restarts: {restarts}"] if restarts else [])]
        lines += [f"#   {step.number}: {step.kind.name}" for step in self.steps] + [""]
        for one in self.inputs:
            lines += _definition(one)
        for text in self.texts:
            lines += [*text.definitions, ""] if text.definitions else []
        lines += ["def build(source, sink):"]
        body = [line for one in self.inputs for line in _input(one)]
        body += [line for text in self.texts for line in text.call.split("\n")]
        for name, info in self.sunk.items():
            # some sinks change the records that they get
            changes = ", changes=True" if len(name) + int(name[-1], 36) & 1 else ""
            body.append(f'sink("{name}", {name}{changes})  # order: {info.order.name}, key: {info.shape.k("r")}')
        return "\n".join([*lines, *("    " + line for line in body), ""])


def _made(one: Input, value: str) -> list[str]:
    """Statements that make the record of a number: the object that was made before is changed and returned."""
    key = f"{one.keys!r}[{value} % {len(one.keys)}]"
    return [
        "r = self.kept",
        f"number = {value}",
        *one.shape.refilled("r", key.replace(value, "number"), "number"),
        "self.kept = r",
        "return r",
    ]


def _definition(one: Input) -> list[str]:
    """The class that makes the records of a source, if there is one."""
    name, count = f"{one.name.capitalize()}Records", one.records
    kept = f"    kept = {one.shape.new(repr(one.keys[0]), '0')}"
    if one.form == "generated":
        base, head, value = "", "__call__(self, i)", "i + 1"
    elif one.form == "lines":
        base, head, value = "DeserializationSchema", "deserialize(self, message)", "int(message)"
    elif one.form == "paged":
        base, head, value = "PagedSource", "record(self, value)", "value"
    else:
        return []
    lines = [f"class {name}{f'({base})' if base else ''}:", kept, "    bounded = True"]
    lines += [f"    produced_type = {one.shape.declared()}", "    def get_produced_type(self):"]
    lines += ["        return self.produced_type", "    def fetch(self, cursor):", "        at = cursor or 0"]
    lines += [
        f"        return Page(list(range(at + 1, min(at + 4, {count}) + 1)), at + 4 if at + 4 < {count} else None)"
    ]
    return [*lines, f"    def {head}:", *("        " + line for line in _made(one, value)), ""]


def _input(one: Input) -> list[str]:
    declared = one.shape.declared()
    made, time = f"{one.name.capitalize()}Records()", f"lambda r: 3 * {one.shape.n('r')}"
    head = f'{one.name} = source.{one.form}("{one.name}", '
    if one.form == "generated":
        return [f"{head}{made}, {one.records}, {1 + one.records // 3}, {time}, {declared})"]
    if one.form == "paged":
        return [f"{head}{made}, {time}, {declared})"]
    if one.form == "lines":
        return [f"{head}{made}, {[str(number + 1) for number in range(one.records)]}, {time}, {declared})"]
    lines = [f"{head}{'[' * (1 + (one.form == 'splits'))}"]
    for element in one.elements:
        if one.form == "bare" and isinstance(element, tuple):
            lines.append(f"    {one.shape.new(repr(element[1]), str(element[2]))},")
        elif isinstance(element, tuple):
            time_ms, key, number = element
            lines.append(f"    At({time_ms}, {one.shape.new(repr(key), str(number))}),")
        elif element == "split":
            lines.append("], [")
        elif element == "idle":
            lines.append("    Idle(),")
        elif one.form != "bare" or element is None:
            lines.append("    Pause()," if element is None else f"    Mark({element}),")
    return [*lines, f"]{']' if one.form == 'splits' else ''}, {declared})"]


def random_program(seed: str, *, spark: bool = False, idle: bool = False, restores: bool = False) -> Program:
    """The program of a seed.

    Args:
        spark: it can run on Spark, where nobody sets the clock and nothing fails.
        idle: it is one whose sources are idle at times.
        restores: it is one that goes on from savepoints, mostly without late records and with splits that are silent
            for epochs.
    """
    rng = random.Random(seed)
    if restores:
        program = _with_steps(rng, _restored_program(rng, spark), spark, 0.6)
        # of an object that is twice in a value a savepoint has two; functions in the chain of a source begin without
        # its watermark (docs/semantics.md); and on Spark nobody knows when a job goes on
        unfit = r"\]\] \* 2|current_watermark\(\)" + (r"|\b(kept|self\.last)\b" if spark else "")
        return random_program(f"{seed}'", spark=spark, restores=True) if re.search(unfit, program.source) else program
    parallelism = 2 if spark else rng.choice([1, 1, 2])
    restarts = _random_restarts(rng) if rng.random() < 0.3 and not spark else ()
    if idle or rng.random() < 0.1:
        program = Program(2 if spark else rng.choice([1, 1, 1, 2]), True, True, restarts, _apart_inputs(rng, idle), ())
    else:
        sources = rng.choice([1, 1, 1, 2])
        late = sources == 1 and rng.random() < 0.4
        inputs = [_random_input(rng, f"in{number}", number, late) for number in range(sources)]
        if rng.random() < 0.15:
            inputs = [replace(one, form="bare") for one in inputs]
        elif not late and rng.random() < 0.15:
            forms = ["generated", "lines", *([] if restarts else ["paged"])]
            if parallelism > 1:
                forms.remove("lines")
            inputs = [replace(one, form=rng.choice(forms)) for one in inputs]
            inputs = [replace(one, form="generated" if parallelism > 1 else one.form) for one in inputs]
        program = Program(parallelism, late, False, restarts, tuple(inputs), ())
    program = _with_steps(rng, program, spark)
    return _for_spark(program, seed) if spark else program


def _with_steps(rng: random.Random, program: Program, spark: bool, timed: float = 0) -> Program:
    """The program with operators. ``timed``: the share of those that are chosen among the ones that depend on time."""
    for number in range(1, rng.choice([2, 3, 4, 5, 7]) + 1):
        program = _with_step(rng, program, number, spark, timed)
    names = [name for name in program.streams if rng.random() < 0.3]
    return replace(program, sinks=frozenset(names))


def _restored_program(rng: random.Random, spark: bool) -> Program:
    """A program without operators that goes on from a savepoint before some epochs, or before each one. With one
    subtask all is as in a run without restores, lateness included."""
    parallelism = 2 if spark else rng.choice([1, 2, 2, 2])
    late = parallelism == 1 and rng.random() < 0.5
    if late:
        inputs = [_random_input(rng, "in0", 0, True)]
    else:
        inputs = [_random_splits(rng, f"in{number}", number) for number in range(rng.choice([1, 1, 2]))]
    share, each = rng.choice([0.15, 0.4, 1.0]), [1, 2, 3] if parallelism > 1 else [1]
    epochs = range(1, max(sum(element is None for element in one.elements) for one in inputs) + 1)
    restarts = tuple((epoch, f"RESTORE_{rng.choice(each)}") for epoch in epochs if rng.random() < share)
    if spark:
        # a job takes seconds to begin
        restarts = tuple(sorted(rng.sample(restarts, min(len(restarts), 2))))
    return Program(parallelism, late, False, restarts, tuple(inputs), ())


def _random_splits(rng: random.Random, name: str, number: int) -> Input:
    """A source with two or three splits, none of whose records is late, and each of which is silent at times."""
    elements: list[Element] = []
    splits = rng.choice([("a", "b"), ("ab", "c"), ("a", "b", "c")])
    for split, keys in enumerate(splits):
        elements += ["split"] if split else []
        elements += [None] * rng.choice([0, 0, 0, 1, 2])
        times = [max(0, 3 * index + rng.choice([0, 0, -4, -9, 2])) for index in range(rng.choice([4, 8, 12]))]
        watermark = -1
        for index, time_ms in enumerate(times):
            elements.append((time_ms, rng.choice(keys), 1 + len(splits) * index + split + 100 * number))
            mark = min(times[index + 1 :] or [10**5]) - 1
            if rng.random() < 0.5 and mark > watermark:
                watermark = mark
                elements.append(mark)
            if rng.random() < 0.3:
                elements += [None] * rng.choice([1, 1, 2, 3])
    return Input(name, random_shape(rng), "".join(splits), tuple(elements), "splits")


def _for_spark(program: Program, seed: str) -> Program:
    """The program with one epoch, or another one, if functions keep objects: where a task runs next, and so what its
    functions have kept, is known within an epoch only."""
    if not re.search(r"\b(kept|self\.last)\b", "".join(line for text in program.texts for line in text.definitions)):
        return program
    if program.apart or any(one.form not in ("marks", "bare") for one in program.inputs):
        return random_program(f"{seed}'", spark=True)
    inputs = [
        replace(one, elements=tuple(filter(lambda element: element is not None, one.elements)))
        for one in program.inputs
    ]
    return replace(program, inputs=tuple(inputs))


#: the phases of an epoch at which jobs fail, and "BETWEEN": before an epoch
PHASES = ("BETWEEN", "PLANNED", "EPOCH_PREPARED")


def _random_restarts(rng: random.Random) -> tuple[tuple[int, str], ...]:
    return tuple((epoch, rng.choice(PHASES)) for epoch in range(5) if rng.random() < 0.4)


def _random_input(rng: random.Random, name: str, number: int, late: bool) -> Input:
    keys = rng.choice(["abc", "ab", "a"]) if number == 0 else rng.choice(["abc", "xy"])
    count = rng.choice([6, 10, 16, 24])
    times = [max(0, 3 * index + rng.choice([0, 0, -4, -9, 2])) for index in range(count)]
    elements: list[Element] = []
    watermark = -1
    for index, time_ms in enumerate(times):
        elements.append((time_ms, rng.choice(keys), index + 1 + 100 * number))
        if rng.random() < 0.35:
            mark = max(times[: index + 1]) - rng.choice([1, 5]) if late else min(times[index + 1 :] or [10**5]) - 1
            if mark > watermark:
                watermark = mark
                elements.append(mark)
        if rng.random() < 0.15:
            elements.append(None)
    return Input(name, random_shape(rng), keys, tuple(elements))


def _apart_inputs(rng: random.Random, idles: bool) -> tuple[Input, ...]:
    """Two sources that have records in different epochs, and end in different ones. ``idles``: at times they are idle;
    an epoch then has one record."""
    keys = rng.choice(["abc", "ab", "a"])
    elements: tuple[list[Element], list[Element]] = ([], [])
    latest, marks, number = [0, 0], [-1, -1], 0
    for _ in range(rng.choice([4, 8, 14]) * (2 if idles else 1)):
        one = rng.randrange(2)
        for _ in range(1 if idles else rng.randint(1, 4)):
            number += 1
            latest[one] += rng.choice([0, 1, 5, 20])
            elements[one].append((max(0, latest[one] - rng.choice([0, 0, 4, 9])), rng.choice(keys), number))
            mark = latest[one] - rng.choice([1, 5])
            if not idles and rng.random() < 0.4 and mark > marks[one]:
                marks[one] = mark
                elements[one].append(mark)
        if idles and rng.random() < 0.3:
            elements[one].append("idle")
        for each in elements:
            each.append(None)
    # the sources end in epochs of their own
    for index, each in enumerate(elements):
        each += [None] * (1 + index)
    form = "idle" if idles else "marks"
    return tuple(Input(f"in{index}", random_shape(rng), keys, tuple(elements[index]), form) for index in (0, 1))


def _with_step(rng: random.Random, program: Program, number: int, spark: bool, timed: float = 0) -> Program:
    """The program with one more operator. It reads the newest stream or another one: some have two consumers."""
    streams = list(program.streams.values())
    for _ in range(50):
        kind = rng.choice(
            KINDS if rng.random() < 0.7 or not program.apart else [one for one in KINDS if one.inputs == 2]
        )
        if timed and rng.random() < timed:
            kind = rng.choice([one for one in KINDS if one.timed])
        first = streams[-1] if rng.random() < 0.6 else rng.choice(streams)
        second = rng.choice(streams) if kind.inputs == 2 else first
        if kind.clock and spark:
            continue
        if kind.possible(first, second, program.parallelism):
            step = Step(number, kind, (first.name, second.name), rng.getrandbits(32))
            return replace(program, steps=(*program.steps, step))
    return program


def smaller(program: Program) -> Iterator[Program]:
    """Programs with one thing less: a step, whose readers read its input instead; a sink; a part of the input."""
    for step in reversed(program.steps):
        first = step.inputs[0]
        outputs = {f"s{step.number}", f"s{step.number}_side", f"s{step.number}_late"}
        steps = tuple(
            replace(one, inputs=tuple(first if name in outputs else name for name in one.inputs))  # type: ignore[arg-type]
            for one in program.steps
            if one is not step
        )
        yield replace(program, steps=steps)
    for name in program.sinks:
        yield replace(program, sinks=program.sinks - {name})
    if program.parallelism > 1:
        yield replace(program, parallelism=1)
    if program.restarts:
        yield replace(program, restarts=())
        for restart in program.restarts:
            yield replace(program, restarts=tuple(one for one in program.restarts if one != restart))
    if program.apart:
        return
    for index, one in enumerate(program.inputs):
        length = len(one.elements)
        for size in (length // 2, length // 4, 1):
            for start in range(0, length if size else 0, size or 1):
                # what follows in a split is not late because of a mark of another one
                kept = [element for element in one.elements[start : start + size] if element == "split"]
                elements = (*one.elements[:start], *kept, *one.elements[start + size :])
                inputs = (*program.inputs[:index], replace(one, elements=elements), *program.inputs[index + 1 :])
                if elements:
                    yield replace(program, inputs=inputs)
