"""A random program: which operators it has, its input, and the text that is made of both.

Everything is chosen by a seed. An operator is a `Step`, which has a seed of its own, so a program from which steps are
taken away (`smaller`) is otherwise the same.
"""

from __future__ import annotations

import random
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


@dataclass(frozen=True)
class Input:
    """A source: its records as (time in ms, key, number), and marks: None ends an epoch, a number is a watermark."""

    name: str
    shape: Shape
    keys: str
    elements: tuple[tuple[int, str, int] | int | None, ...]

    @property
    def records(self) -> int:
        return sum(isinstance(element, tuple) for element in self.elements)


@dataclass(frozen=True)
class Program:
    """A program, whose text is `source`."""

    parallelism: int
    late: bool
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
            one.name: StreamInfo(one.name, one.shape, Order.TOTAL, True, self.late, frozenset(one.keys), one.records)
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
        lines = [f"# parallelism: {self.parallelism}"]
        lines += [f"#   {step.number}: {step.kind.name}" for step in self.steps] + [""]
        for text in self.texts:
            lines += [*text.definitions, ""] if text.definitions else []
        lines += ["def build(source, sink):"]
        body = [line for one in self.inputs for line in _input(one)]
        body += [line for text in self.texts for line in text.call.split("\n")]
        for name, info in self.sunk.items():
            body.append(f'sink("{name}", {name})  # order: {info.order.name}, key: {info.shape.k("r")}')
        return "\n".join([*lines, *("    " + line for line in body), ""])


def _input(one: Input) -> list[str]:
    lines = [f'{one.name} = source("{one.name}", [']
    for element in one.elements:
        if isinstance(element, tuple):
            time_ms, key, number = element
            lines.append(f"    At({time_ms}, {one.shape.new(repr(key), str(number))}),")
        else:
            lines.append("    Pause()," if element is None else f"    Mark({element}),")
    return [*lines, f"], {one.shape.declared()})"]


def random_program(seed: str) -> Program:
    """The program of a seed."""
    rng = random.Random(seed)
    parallelism = rng.choice([1, 1, 2])
    sources = rng.choice([1, 1, 1, 2])
    late = sources == 1 and rng.random() < 0.4
    inputs = [_random_input(rng, f"in{number}", number, late) for number in range(sources)]
    program = Program(parallelism, late, tuple(inputs), ())
    for number in range(1, rng.choice([2, 3, 4, 5, 7]) + 1):
        program = _with_step(rng, program, number)
    names = [name for name in program.streams if rng.random() < 0.3]
    return replace(program, sinks=frozenset(names))


def _random_input(rng: random.Random, name: str, number: int, late: bool) -> Input:
    keys = rng.choice(["abc", "ab", "a"]) if number == 0 else rng.choice(["abc", "xy"])
    count = rng.choice([6, 10, 16, 24])
    times = [max(0, 3 * index + rng.choice([0, 0, -4, -9, 2])) for index in range(count)]
    elements: list[tuple[int, str, int] | int | None] = []
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


def _with_step(rng: random.Random, program: Program, number: int) -> Program:
    """The program with one more operator. It reads the newest stream or another one: some have two consumers."""
    streams = list(program.streams.values())
    for _ in range(50):
        kind = rng.choice(KINDS)
        first = streams[-1] if rng.random() < 0.6 else rng.choice(streams)
        second = rng.choice(streams) if kind.inputs == 2 else first
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
    for index, one in enumerate(program.inputs):
        length = len(one.elements)
        for size in (length // 2, length // 4, 1):
            for start in range(0, length if size else 0, size or 1):
                elements = one.elements[:start] + one.elements[start + size :]
                inputs = (*program.inputs[:index], replace(one, elements=elements), *program.inputs[index + 1 :])
                if elements:
                    yield replace(program, inputs=inputs)
