"""The kinds of operators and functions that random programs are made of: one row of `KINDS` each.

A kind writes the text of one operator. Its functions do to records what users do and what engines get wrong: they keep
objects, change them before and after they are emitted, emit one object again and again, share parts of it, and change
what they have read from state.

Not every kind is possible behind every other one, because the model and flinkish must agree for a reason that Flink
guarantees. So a stream says what is known of it: `Order`, and whether its time is exact.
"""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from tests.random_programs.shapes import KINDS as STRUCTURES
from tests.random_programs.shapes import Shape, random_shape

ANY = "Types.PICKLED_BYTE_ARRAY()"
#: behind all records
END_MS = 1_000_000
#: the most records that a stream may have, roughly
MANY = 250


class Order(IntEnum):
    """What is known of the order of the records of a stream, and of the instances that they meet."""

    #: neither
    NONE = 0
    #: the records of each key come in order, and to one instance of a function
    KEYED = 1
    #: all records come in order, to one instance
    TOTAL = 2


@dataclass(frozen=True)
class StreamInfo:
    """A stream of a program.

    Args:
        exact: whether each record comes between the same watermarks as in the model.
        late: whether there may be late records.
        keys: the letters with which keys begin.
        size: about how many records there are.
        origins: the sources that it comes from. ``apart``: whether only one source has records in each epoch.
        idles: whether sources say that they are idle.
        clocked: whether records come from timers in processing time.
        fired: whether records are results of timers: how many watermarks have passed before them depends on epochs.
    """

    name: str
    shape: Shape
    order: Order
    exact: bool
    late: bool
    keys: frozenset[str]
    size: int
    origins: frozenset[str] = frozenset()
    apart: bool = False
    idles: bool = False
    clocked: bool = False
    fired: bool = False

    @property
    def k(self) -> str:
        return f"lambda r: {self.shape.k('r')}"

    @property
    def keyed(self) -> str:
        return f"{self.name}.key_by({self.k})"


class Text:
    """What a kind writes: definitions of functions, and the call that adds the operator."""

    def __init__(self, name: str, rng: random.Random, parallelism: int) -> None:
        self.name, self.rng, self.parallelism = name, rng, parallelism
        self.function = f"{name.capitalize()}Function"
        self.definitions: list[str] = []
        self.call = ""
        self.outputs: list[StreamInfo] = []

    def define(self, base: str, /, **methods: str | list[str]) -> str:
        """A class with methods; their names have the parameters: ``map__r`` is ``map(self, r)``. Returns the name of
        the class."""
        name = self.function if not self.definitions else f"{self.function}{len(self.definitions)}"
        lines = [f"class {name}({base}):"]
        for method, body in methods.items():
            method, _, parameters = method.partition("__")
            head = "async def" if method == "async_invoke" else "def"
            lines.append(f"    {head} {method}({', '.join(['self', *filter(None, parameters.split('_'))])}):")
            lines.append(textwrap.indent("\n".join([body] if isinstance(body, str) else body), " " * 8))
        self.definitions.append("\n".join(lines))
        return name

    def plain(self, parameters: str, body: list[str]) -> str:
        """A plain function; returns its name."""
        name = self.name.lower() + "_function" + (str(len(self.definitions)) if self.definitions else "")
        self.definitions.append(f"def {name}({parameters}):\n" + textwrap.indent("\n".join(body), " " * 4))
        return name

    def either(self, base: str, method: str, body: list[str]) -> str:
        """A function of one record ``r``, in any form in which Python has functions."""
        form = self.rng.randrange(8)
        if form < 3:
            return self.plain("r", body)
        if form < 6:
            return self.define(base, **{f"{method}__r": body}) + "()"
        return self.callable_with_kept(body)

    def callable_with_kept(self, body: list[str]) -> str:
        """A callable object, a bound method or a partial function of one record ``r``, which keeps a dict ``kept``."""
        form = self.rng.randrange(3)
        if form == 0:
            return f"functools.partial({self.plain('kept, r', body)}, {{}})"
        method = "__call__" if form == 1 else "called"
        name = f"{self.function}Callable"
        lines = [f"class {name}:", "    def __init__(self):", "        self.kept = {}", f"    def {method}(self, r):"]
        lines += [f"        {line}" for line in ["kept = self.kept", *body]]
        self.definitions.append("\n".join(lines))
        return f"{name}()" if form == 1 else f"{name}().called"

    def change(self, shape: Shape, variable: str = "r", value: str | None = None) -> list[str]:
        return shape.changes(self.rng, variable, value or shape.n("r"))

    def maybe_change(self, shape: Shape, variable: str = "r", value: str | None = None) -> list[str]:
        return self.change(shape, variable, value) if self.rng.random() < 0.5 else []

    def add(
        self, expression: str, info: StreamInfo, shape: Shape | None = None, *, factor: float = 1, **known: object
    ) -> None:
        """Add the operator. ``expression`` ends with the arguments, to which the declared type is added if ``{t}`` is
        in it."""
        shape = shape or info.shape
        declared = f"output_type={shape.declared()}" if shape.typed else ""
        text = expression.replace(", {t}", f", {declared}" if declared else "")
        if "disable" not in text and self.rng.random() < 0.08:
            text += self.rng.choice([".start_new_chain()", ".disable_chaining()"])
        if not text.startswith(f"{info.name}.union("):
            text += f'.uid("{self.name}")'
        self.call = f"{self.name} = {text}"
        out = replace(info, name=self.name, shape=shape, size=max(1, int(info.size * factor)))
        self.outputs.insert(0, replace(out, **known))  # type: ignore[arg-type]

    def kept(self, info: StreamInfo) -> str:
        """The key under which an instance may keep something: of one key, or of all."""
        return '"all"' if info.order is Order.TOTAL and self.rng.random() < 0.5 else info.shape.k("r")


Write = Callable[[Text, StreamInfo, StreamInfo], None]


class Kind(NamedTuple):
    """A kind of operator.

    Args:
        write: writes the text; its second stream is the first one if the kind has one input.
        inputs: number of inputs.
        order: the least order that it needs. ``second``: the least order of its second input.
        timed: whether its results depend on time. ``exact``: on exactly when watermarks come.
        apart: whether its two inputs may not have records in the same epoch.
        clock: whether it depends on processing time.
        factor: by how much it multiplies records.
        fits: further conditions.
    """

    name: str
    write: Write
    inputs: int = 1
    order: Order = Order.NONE
    second: Order = Order.NONE
    timed: bool = False
    exact: bool = False
    apart: bool = False
    clock: bool = False
    factor: float = 1
    fits: Callable[[StreamInfo, int], bool] = lambda info, parallelism: True

    def possible(self, info: StreamInfo, other: StreamInfo, parallelism: int) -> bool:
        """Whether model and flinkish must agree on it behind these streams."""
        streams = (info, other)
        apart = _apart(info, other, parallelism)
        if self.inputs == 2 and not apart and (self.apart or self.timed and any(stream.late for stream in streams)):
            return False
        if any(not stream.exact and (self.exact or self.timed and stream.late) for stream in streams):
            return False
        if self.clock and any(stream.clocked for stream in streams):
            return False
        if info.order < self.order or other.order < max(self.order, self.second):
            return False
        return sum(stream.size for stream in streams) * self.factor <= MANY and self.fits(info, parallelism)


def _apart(one: StreamInfo, other: StreamInfo, parallelism: int) -> bool:
    """Whether it is certain in which order the records of both streams come."""
    return one.apart and other.apart and not one.origins & other.origins and parallelism == 1


KINDS: list[Kind] = []


def kind(inputs: int = 1, order: Order = Order.NONE, **known: object) -> Callable[[Write], Write]:
    def register(write: Write) -> Write:
        KINDS.append(Kind(write.__name__, write, inputs, order, **known))  # type: ignore[arg-type]
        return write

    return register


def _typed_state(t: Text, shape: Shape) -> str:
    return shape.declared() if t.rng.random() < 0.5 else ANY


# --- one record, one function -----------------------------------------------------------------------------------------


@kind()
def map_that_changes(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    function = t.either("MapFunction", "map", [*t.change(s.shape), "return r"])
    t.add(f"{s.name}.map({function}, {{t}})", s)


@kind()
def map_to_a_new_record_with_the_old_part(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    shape = s.shape.other_record(t.rng)
    part = s.shape.p("r")
    if t.rng.random() < 0.4:
        part = s.shape.make_part(s.shape.a("r"), s.shape.c("r"))
    new = shape.make(s.shape.k("r"), s.shape.n("r") + " + 1", part)
    body = [f"new = {new}", *t.maybe_change(s.shape), *t.maybe_change(shape, "new", s.shape.n("r")), "return new"]
    t.add(f"{s.name}.map({t.either('MapFunction', 'map', body)}, {{t}})", s, shape)


@kind()
def map_to_another_shape(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    shape = random_shape(t.rng)
    body = [f"return {shape.new(s.shape.k('r'), s.shape.n('r'))}"]
    t.add(f"{s.name}.map({t.either('MapFunction', 'map', body)}, {{t}})", s, shape)


@kind(order=Order.KEYED)
def map_that_keeps_contents(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    """The list (dict, set) of all so far is in each result."""
    x = "contents"
    n = s.shape.n("r")
    grow = {"list": f"{x}.append({n})", "dict": f"{x}[{n} % 7] = {n}", "set": f"{x}.add({n} % 9)"}
    body = [
        f"{x} = self.kept.setdefault({t.kept(s)}, {s.shape.new_contents(n)})",
        grow.get(s.shape.contents, f"{x}.append([{n}])"),
        *([f"del {x}[:-8]"] if s.shape.contents in ("list", "nested", "twin") else []),
        f"return {s.shape.make(s.shape.k('r'), n, s.shape.make_part('1', x))}",
    ]
    function = t.define("MapFunction", open__context="self.kept = {}", map__r=body)
    t.add(f"{s.name}.map({function}(), {{t}})", s)


@kind(order=Order.KEYED)
def map_that_keeps_a_part(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    shape = s.shape.other_record(t.rng)
    body = [
        f"part = self.kept.setdefault({t.kept(s)}, {s.shape.p('r')})",
        f"new = {shape.make(s.shape.k('r'), s.shape.n('r'), 'part')}",
        *t.change(shape, "new", s.shape.n("r")),
        "return new",
    ]
    function = t.define("MapFunction", open__context="self.kept = {}", map__r=body)
    t.add(f"{s.name}.map({function}(), {{t}})", s, shape)


@kind(order=Order.KEYED)
def map_that_keeps_a_record(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    body = [
        f"kept = self.kept.setdefault({s.shape.k('r')}, r)",
        *t.change(s.shape, "kept"),
        "return kept",
    ]
    function = t.define("MapFunction", open__context="self.kept = {}", map__r=body)
    t.add(f"{s.name}.map({function}(), {{t}})", s)


@kind(order=Order.KEYED)
def map_by_a_callable_that_keeps(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    """Partial functions, bound methods and callable objects have state, too."""
    body = [f"last = kept.setdefault({s.shape.k('r')}, r)", *t.change(s.shape, "last"), "return last"]
    t.add(f"{s.name}.map({t.callable_with_kept(body)}, {{t}})", s)


@kind(order=Order.KEYED)
def map_that_changes_what_it_returned(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    key = t.kept(s)
    body = [
        f"last = self.last.get({key})",
        "if last is not None:",
        *("    " + line for line in t.change(s.shape, "last")),
        f"self.last[{key}] = r",
        *t.maybe_change(s.shape),
        "return r",
    ]
    function = t.define("MapFunction", open__context="self.last = {}", map__r=body)
    t.add(f"{s.name}.map({function}(), {{t}})", s)


@kind(order=Order.KEYED)
def map_that_returns_the_record_before(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    key = s.shape.k("r")
    body = [
        f"last = self.last.get({key}, r)",
        f"self.last[{key}] = r",
        *t.change(s.shape, t.rng.choice(["r", "last"])),
        "return last",
    ]
    function = t.define("MapFunction", open__context="self.last = {}", map__r=body)
    t.add(f"{s.name}.map({function}(), {{t}})", s)


@kind()
def filter_that_changes(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    body = [*t.change(s.shape), f"return {s.shape.n('r')} % 5 != 0"]
    t.add(f"{s.name}.filter({t.either('FilterFunction', 'filter', body)})", s)


@kind(order=Order.KEYED)
def filter_that_keeps(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    key = t.kept(s)
    body = [
        f"for last in self.last.get({key}, []):",
        *("    " + line for line in t.change(s.shape, "last")),
        f"self.last[{key}] = [r]",
        "return True",
    ]
    function = t.define("FilterFunction", open__context="self.last = {}", filter__r=body)
    t.add(f"{s.name}.filter({function}())", s)


@kind(factor=3)
def flat_map_that_yields_one_object(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    body = ["for i in range(3):", *("    " + line for line in t.change(s.shape, value="i + 1")), "    yield r"]
    if t.rng.random() < 0.5:
        body = ["yield r", *t.change(s.shape), "yield r", *t.change(s.shape)]
    t.add(f"{s.name}.flat_map({t.either('FlatMapFunction', 'flat_map', body)}, {{t}})", s, factor=2.5)


@kind(factor=2, fits=lambda s, _: STRUCTURES[s.shape.record])
def flat_map_that_renames_one_object(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    k = s.shape.k("r")
    body = [
        f"name = {k}",
        'for letter in "pq":',
        f"    {k} = name + letter",
        *("    " + line for line in t.maybe_change(s.shape)),
        "    yield r",
    ]
    t.add(f"{s.name}.flat_map({t.either('FlatMapFunction', 'flat_map', body)}, {{t}})", s, factor=2)


@kind(factor=2)
def flat_map_that_returns_a_fresh_list(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    other = s.shape.make(s.shape.k("r"), s.shape.n("r") + " + 1", s.shape.p("r"))
    result = t.rng.choice([f"[r, {other}]", f"({other}, r)", "[r, r]", f"iter([{other}, r])"])
    body = [*t.maybe_change(s.shape), f"return {result}"]
    t.add(f"{s.name}.flat_map({t.either('FlatMapFunction', 'flat_map', body)}, {{t}})", s, factor=2)


@kind(order=Order.KEYED, factor=3)
def flat_map_that_returns_a_kept_list(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    body = [
        f"kept = self.kept.setdefault({s.shape.k('r')}, [])",
        "kept.append(r)",
        "del kept[:-3]",
        "for each in kept:",
        *("    " + line for line in t.change(s.shape, "each")),
        f"return {t.rng.choice(['kept', 'tuple(kept)', 'list(kept)'])}",
    ]
    function = t.define("FlatMapFunction", open__context="self.kept = {}", flat_map__r=body)
    t.add(f"{s.name}.flat_map({function}(), {{t}})", s, factor=3)


@kind(factor=2)
def process_with_side_output(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    tag = f"{t.name.upper()}_SIDE"
    declared = f", {s.shape.declared()}" if s.shape.typed else ""
    t.definitions.append(f'{tag} = OutputTag("{t.name} side"{declared})')
    first, second = t.rng.choice([("yield r", f"yield {tag}, r"), (f"yield {tag}, r", "yield r")])
    body = [*t.maybe_change(s.shape), first, *t.change(s.shape), second, *t.maybe_change(s.shape)]
    function = t.define("ProcessFunction", process_element__r_ctx=body)
    t.add(f"{s.name}.process({function}(), {{t}})", s)
    side = replace(s, name=f"{t.name}_side")
    t.call += f"\n{side.name} = {t.name}.get_side_output({tag})"
    t.outputs.append(side)


@kind(order=Order.TOTAL)
def map_with_operator_state(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    """The state is what was returned; it is put into state at the end of each epoch."""
    n = s.shape.n("r")
    function = t.define(
        "MapFunction, CheckpointedFunction",
        initialize_state__context=[
            f'descriptor = ListStateDescriptor("kept", {_typed_state(t, s.shape)})',
            "self.state = context.get_operator_state_store().get_list_state(descriptor)",
            "self.kept = list(self.state.get())",
        ],
        map__r=[
            "self.kept.append(r)",
            "del self.kept[:-3]",
            *t.change(s.shape, "self.kept[0]", n),
            *t.change(s.shape, "self.kept[-1]", n),
            f"return self.kept[{t.rng.choice(['0', '-1'])}]",
        ],
        snapshot_state__context=["self.state.update(self.kept)", *_if(t, "self.kept = list(self.state.get())")],
    )
    t.add(f"{s.name}.map({function}(), {{t}})", s)


def _if(t: Text, line: str) -> list[str]:
    return [line] if t.rng.random() < 0.5 else []


# --- what functions share without knowing -----------------------------------------------------------------------------


@kind(order=Order.TOTAL, fits=lambda s, parallelism: parallelism == 1)
def map_that_fills_a_global_in_open(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    """The global is None when the program is built, and grows with each record."""
    x, n = t.name.upper() + "_HISTORY", s.shape.n("r")
    fill = t.rng.choice([f"{x} = {s.shape.new_contents('0')}", f'globals()["{x}"] = {s.shape.new_contents("0")}'])
    grow = {"list": f"{x}.append({n})", "dict": f"{x}[{n} % 7] = {n}", "set": f"{x}.add({n} % 9)"}
    t.definitions.append(f"{x} = None")
    function = t.define(
        "MapFunction",
        open__context=[*([f"global {x}"] if fill.startswith(x) else []), fill],
        map__r=[
            grow.get(s.shape.contents, f"{x}.append([{n}])"),
            *([f"del {x}[:-8]"] if s.shape.contents in ("list", "nested", "twin") else []),
            f"return {s.shape.make(s.shape.k('r'), n, s.shape.make_part('1', x))}",
        ],
    )
    t.add(f"{s.name}.map({function}(), {{t}})", s)


@kind()
def map_with_a_global_of_open(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    """Each result has what `open` has loaded into a global; whoever changes it there has his own."""
    x = t.name.upper() + "_CONFIG"
    t.definitions.append(f"{x} = None")
    part = s.shape.make_part("1", x)
    function = t.define(
        "MapFunction",
        open__context=[f"global {x}", f"{x} = {s.shape.new_contents('3')}"],
        map__r=f"return {s.shape.make(s.shape.k('r'), s.shape.n('r'), part)}",
    )
    t.add(f"{s.name}.map({function}(), {{t}})", s)


@kind()
def map_to_what_a_class_hands_out(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    """A default of a named tuple, an attribute of a class, what a method gives: one list in all results of the
    function, and behind it each result has its own."""
    k, n = s.shape.k("r"), s.shape.n("r")
    handed_out = t.rng.choice(
        ["NamedWithDefault({k}, {n})", "({k}, {n}, Holder.contents)", "({k}, {n}, Holder().get())"]
    )
    body = [f"return {handed_out.format(k=k, n=n)}"]
    first = t.rng.choice([f"lambda r: {body[0][7:]}", t.either("MapFunction", "map", body)])
    between = t.rng.choice([".key_by(lambda r: r[0]).map(lambda r: r)", ".rebalance()", ".disable_chaining()", ""])
    counted = s.shape.make("r[0]", "r[1]", s.shape.make_part("len(r[2])", s.shape.new_contents("r[1]")))
    second = t.plain("r", ["r[2].append(r[1])", f"return {counted}"])
    order = s.order
    if between.startswith((".key_by", ".rebalance")) and t.parallelism > 1:
        order = min(s.order, Order.KEYED) if "key_by" in between else Order.NONE
    exact = s.exact and t.parallelism == 1
    t.add(f"{s.name}.map({first}){between}.map({second}, {{t}})", s, order=order, exact=exact)


@kind(order=Order.KEYED)
def count_by_a_key_that_is_code(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    """The key is a property, or found by `__getattr__` or `__getitem__`, and another one when it is asked again."""
    k, n = s.shape.k("r"), s.shape.n("r")
    cls, keys = t.rng.choice(
        [
            ("Asked", ["lambda r: r.key", 'operator.attrgetter("key")', "lambda r: (r.key, 1)"]),
            ("AskedByName", ["lambda r: r.found", 'lambda r: r["key"]', 'operator.itemgetter("key")']),
        ]
    )
    function = t.define(
        "KeyedProcessFunction",
        open__context='self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))',
        process_element__r_ctx=[
            "count = (self.count.value() or 0) + 1",
            "self.count.update(count)",
            f"yield {s.shape.make('r.k', 'r.n', s.shape.make_part('count', s.shape.new_contents('r.n')))}",
        ],
    )
    head = f"{s.name}.map(lambda r: {cls}({k}, {n})).key_by({t.rng.choice(keys)})"
    t.add(f"{head}.process({function}(), {{t}})", s, **_keyed(t, s))


@kind(order=Order.KEYED, factor=2)
def one_closure_in_two_branches(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    """A closure, or a function with a mutable default, which two operators have: each has its own memory."""
    k, n = s.shape.k("r"), s.shape.n("r")
    made = f"{t.name}_made"
    body = [f"seen = kept.setdefault({k}, [])", f"seen.append({n})", f"return len(seen) % {t.rng.choice([2, 3])} == 1"]
    if t.rng.random() < 0.5:
        lines = ["kept = {}", "def check(r):", *(f"    {line}" for line in body), "return check"]
    else:
        lines = ["def check(r, kept={}):", *(f"    {line}" for line in body), "return check"]
    t.definitions.append(f"def {made}():\n" + textwrap.indent("\n".join(lines), "    "))
    check, other = f"{t.name}_check", f"{t.name}_other"
    t.add(f"{s.name}.filter({check})", s)
    t.call = f"{check} = {made}()\n{t.call}\n{other} = {s.name}.filter({check})"
    t.outputs.append(replace(s, name=other))


@kind(timed=True, exact=True, fits=lambda s, _: not s.fired)
def process_with_the_watermark(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    """Each result says what the watermark is, and whether the record was late: also in front of the first shuffle,
    however long epochs are."""
    now = "max(ctx.timer_service().current_watermark(), -1)"
    part = s.shape.make_part("now + late", s.shape.new_contents("now"))
    body = [
        f"now = {now}",
        "late = 1000 * (ctx.timestamp() <= ctx.timer_service().current_watermark())",
        f"yield {s.shape.make(s.shape.k('r'), s.shape.n('r'), part)}",
    ]
    function = t.define("ProcessFunction", process_element__r_ctx=body)
    t.add(f"{s.name}.process({function}(), {{t}})", s)


@kind(order=Order.KEYED, timed=True, exact=True, fits=lambda s, _: not s.fired)
def keyed_process_with_the_watermark(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    now = "max(ctx.timer_service().current_watermark(), -1)"
    new = s.shape.make(s.shape.k("r"), s.shape.n("r"), s.shape.make_part("now", s.shape.new_contents("now")))
    function = t.define("KeyedProcessFunction", process_element__r_ctx=[f"now = {now}", f"yield {new}"])
    t.add(f"{s.keyed}.process({function}(), {{t}})", s, **_keyed(t, s))


@kind()
def repartitioning(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    method = t.rng.choice(["rebalance", "rescale", "shuffle"])
    order = Order.NONE if t.parallelism > 1 else s.order
    body = [*t.change(s.shape), "return r"]
    function = t.either("MapFunction", "map", body)
    exact = s.exact and t.parallelism == 1
    t.add(f"{s.name}.{method}().map({function}, {{t}})", s, order=order, exact=exact)


# --- asynchronous calls -----------------------------------------------------------------------------------------------


@kind()
def asynchronous_call(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    ordered = t.rng.random() < 0.6
    result = t.rng.choice(["[r]", "[r]", "(r,)"])
    pause = ["await asyncio.sleep(0)"]
    body = ["import asyncio", *t.maybe_change(s.shape), *pause, *t.change(s.shape), f"return {result}"]
    if t.rng.random() < 0.3:
        body = [
            "import asyncio",
            f"tried = ({s.shape.k('r')}, {s.shape.n('r')})",
            "if tried not in self.tried:",
            "    self.tried.add(tried)",
            f"    if {s.shape.n('r')} % 3 == 0:",
            '        raise ValueError("the first time")',
            *body[1:],
        ]
        call, rest = "_with_retry", ", AsyncRetryStrategy.fixed_delay(2, 1, None, lambda error: True)"
    else:
        call, rest = "", ""
    function = t.define("AsyncFunction", open__context="self.tried = set()", async_invoke__r=body)
    name = ("ordered" if ordered else "unordered") + "_wait" + call
    order = s.order if ordered else Order.NONE
    t.add(f"AsyncDataStream.{name}({s.name}, {function}(), Time.seconds(600){rest}, {{t}})", s, order=order)


# --- keyed state ------------------------------------------------------------------------------------------------------


def _keyed(t: Text, s: StreamInfo) -> dict[str, object]:
    """What is known of the output of an operator on a keyed stream."""
    return {"order": s.order if t.parallelism == 1 else Order.KEYED, "exact": s.exact and t.parallelism == 1}


@kind(order=Order.KEYED)
def keyed_process_with_value_state(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    shape = s.shape
    new = shape.new(shape.k("r"), shape.n("r"))
    body = [
        *t.rng.choice(
            [
                [f"x = self.state.value() or {new}", *t.change(shape, "x"), "self.state.update(x)"],
                # later values are changed in place only
                ["x = self.state.value()", "if x is None:", f"    x = {new}", "    self.state.update(x)"],
            ]
        ),
        *t.change(shape, "x"),
        *t.maybe_change(shape, "x"),
        *t.rng.choice([["yield x"], ["yield x", *t.change(shape, "x")], ["yield r", *t.change(shape)]]),
    ]
    if t.rng.random() < 0.5:
        body += ["y = self.state.value()", *t.change(shape, "y"), "yield y", *_if(t, "self.state.update(y)")]
    function = t.define(
        "KeyedProcessFunction",
        open__context=f'self.state = context.get_state(ValueStateDescriptor("x", {_typed_state(t, shape)}))',
        process_element__r_ctx=body,
    )
    t.add(f"{s.keyed}.process({function}(), {{t}})", s, factor=1.5, **_keyed(t, s))


@kind(order=Order.KEYED)
def keyed_process_with_kept_record_in_state(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    """The record goes into state, is changed, and is emitted; what was in state is emitted, too."""
    shape = s.shape
    body = [
        "old = self.state.value()",
        "self.state.update(r)",
        *t.change(shape),
        "yield r",
        "if old is not None:",
        *("    " + line for line in t.change(shape, "old")),
        "    yield old",
        *("    " + line for line in t.maybe_change(shape, "old")),
    ]
    function = t.define(
        "KeyedProcessFunction",
        open__context=f'self.state = context.get_state(ValueStateDescriptor("x", {_typed_state(t, shape)}))',
        process_element__r_ctx=body,
    )
    t.add(f"{s.keyed}.process({function}(), {{t}})", s, factor=2, **_keyed(t, s))


@kind(order=Order.KEYED, factor=3)
def keyed_process_with_list_state(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    shape = s.shape
    write = t.rng.choice(
        [
            ["self.state.add(r)"],
            ["self.state.add(r)", *t.change(shape), "self.state.add(r)"],
            ["self.state.add_all([r, r])"],
            ["kept = [*self.state.get(), r]", "self.state.update(kept)", *t.change(shape, "kept[0]"), "kept.clear()"],
        ]
    )
    body = [
        *write,
        *t.change(shape),
        "values = list(self.state.get())[-3:]",
        "for each in values:",
        *("    " + line for line in t.change(shape, "each")),
        "    yield each",
        *("    " + line for line in t.maybe_change(shape, "each")),
        t.rng.choice(["self.state.update(values)", "pass", "self.state.update(values[1:])"]),
    ]
    function = t.define(
        "KeyedProcessFunction",
        open__context=f'self.state = context.get_list_state(ListStateDescriptor("x", {_typed_state(t, shape)}))',
        process_element__r_ctx=body,
    )
    t.add(f"{s.keyed}.process({function}(), {{t}})", s, factor=3, **_keyed(t, s))


@kind(order=Order.KEYED, factor=3)
def keyed_process_with_map_state(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    shape = s.shape
    n = shape.n("r")
    read = t.rng.choice(
        [
            ["for each in list(self.state.values()):"],
            ["for _, each in list(self.state.items()):"],
            ["for each in [self.state.get(key) for key in list(self.state.keys())]:"],
        ]
    )
    body = [
        t.rng.choice([f"self.state.put({n} % 3, r)", f"self.state.put_all({{{n} % 3: r, 7: r}})"]),
        *t.change(shape),
        "yield r",
        *read,
        *("    " + line for line in t.change(shape, "each")),
        "    yield each",
        *([f"    self.state.put({shape.n('each')} % 3, each)"] if t.rng.random() < 0.3 else []),
        *t.maybe_change(shape),
    ]
    where = f'MapStateDescriptor("x", Types.LONG(), {_typed_state(t, shape)})'
    function = t.define(
        "KeyedProcessFunction",
        open__context=f"self.state = context.get_map_state({where})",
        process_element__r_ctx=body,
    )
    t.add(f"{s.keyed}.process({function}(), {{t}})", s, factor=4, **_keyed(t, s))


def _define_aggregate(t: Text, shape: Shape) -> str:
    name = f"{t.function}Aggregate"
    lines = [
        f"class {name}(AggregateFunction):",
        "    def create_accumulator(self):",
        f"        return {shape.empty()}",
        "    def add(self, r, acc):",
        *(f"        {line}" for line in shape.combined("acc", "r")),
        "        return acc",
        "    def get_result(self, acc):",
        *(f"        {line}" for line in t.maybe_change(shape, "acc", shape.n("acc"))),
        "        return acc",
        "    def merge(self, a, b):",
        *(f"        {line}" for line in shape.combined("a", "b")),
        "        return a",
    ]
    t.definitions.insert(0, "\n".join(lines))
    return f"{name}()"


def _define_reduce(t: Text, shape: Shape) -> str:
    """A reduce function that changes its first or its second argument and returns it."""
    name = f"{t.name}_reduce"
    if t.rng.random() < 0.6:
        body = [*shape.combined("x", "y"), "return x"]
    else:
        body = [
            f"new = {shape.make(shape.k('y'), shape.n('y'), shape.p('x'))}",
            *shape.combined("new", "y"),
            "return new",
        ]
    t.definitions.insert(0, f"def {name}(x, y):\n" + textwrap.indent("\n".join(body), "    "))
    return name


@kind(order=Order.KEYED, factor=2)
def keyed_process_with_reducing_state(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    shape = s.shape
    if t.rng.random() < 0.5:
        descriptor = f'context.get_reducing_state(ReducingStateDescriptor("x", {_define_reduce(t, shape)}, {ANY}))'
    else:
        descriptor = (
            f'context.get_aggregating_state(AggregatingStateDescriptor("x", {_define_aggregate(t, shape)}, {ANY}))'
        )
    body = [
        "self.state.add(r)",
        *t.change(shape),
        "x = self.state.get()",
        *t.change(shape, "x"),
        "yield x",
        *t.change(shape, "x"),
        "yield self.state.get()",
    ]
    name = t.function
    t.definitions.append(
        f"class {name}(KeyedProcessFunction):\n    def open(self, context):\n        self.state = {descriptor}\n"
        "    def process_element(self, r, ctx):\n" + textwrap.indent("\n".join(body), " " * 8)
    )
    t.add(f"{s.keyed}.process({name}(), {{t}})", s, factor=2, **_keyed(t, s))


@kind(order=Order.KEYED)
def keyed_map_with_state(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    shape = s.shape
    open_state = f'self.state = context.get_state(ValueStateDescriptor("x", {_typed_state(t, shape)}))'
    body = ["x = self.state.value() or r", *t.change(shape, "x"), "self.state.update(x)"]
    how = t.rng.randrange(3)
    if how == 0:
        function = t.define("MapFunction", open__context=open_state, map__r=[*body, f"return {t.rng.choice('xr')}"])
        t.add(f"{s.keyed}.map({function}(), {{t}})", s, **_keyed(t, s))
    elif how == 1:
        body += ["yield x", *t.change(shape, "x"), "yield r"]
        function = t.define("FlatMapFunction", open__context=open_state, flat_map__r=body)
        t.add(f"{s.keyed}.flat_map({function}(), {{t}})", s, factor=2, **_keyed(t, s))
    else:
        body += t.change(shape) + [f"return {shape.n('x')} % 4 != 1"]
        function = t.define("FilterFunction", open__context=open_state, filter__r=body)
        t.add(f"{s.keyed}.filter({function}())", s, **_keyed(t, s))


@kind(order=Order.KEYED)
def rolling_reduce(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    t.add(f"{s.keyed}.reduce({_define_reduce(t, s.shape)})", s, **_keyed(t, s))


@kind(order=Order.KEYED, fits=lambda s, _: s.shape.record in ("tuple", "list", "Row", "Named"))
def rolling_aggregation(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    field = t.rng.choice(["1", '"n"']) if s.shape.record in ("Row", "Named") else "1"
    method = t.rng.choice(["sum", "min", "max", "min_by", "max_by"])
    t.add(f"{s.keyed}.{method}({field})", s, **_keyed(t, s))


@kind(order=Order.KEYED, timed=True)
def keyed_process_that_emits_at_the_end(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    shape = s.shape
    body = ["self.state.add(r)", *t.change(shape), f"ctx.timer_service().register_event_time_timer({END_MS})"]
    on_timer = [
        "for r in self.state.get():",
        *("    " + line for line in t.change(shape)),
        "    yield r",
        *("    " + line for line in t.change(shape)),
        *_if(t, "self.state.clear()"),
    ]
    function = t.define(
        "KeyedProcessFunction",
        open__context=f'self.state = context.get_list_state(ListStateDescriptor("x", {_typed_state(t, shape)}))',
        process_element__r_ctx=body,
        on_timer__timestamp_ctx=on_timer,
    )
    t.add(f"{s.keyed}.process({function}(), {{t}})", s, **{**_keyed(t, s), "order": Order.KEYED, "fired": True})


@kind(order=Order.KEYED, exact=True, timed=True)
def keyed_process_with_timers(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    """Timers are registered, some are deleted or moved; each emits what is in state."""
    shape = s.shape
    service = "ctx.timer_service()"
    wait = t.rng.choice([3, 10, 25])
    moved = [
        "old = self.timer.value()",
        "if old is not None:",
        f"    {service}.delete_event_time_timer(old)",
        f"self.timer.update(ctx.timestamp() + {wait})",
    ]
    registered = [f"{service}.register_event_time_timer(ctx.timestamp() + {wait})"]
    deleted = [f"if {shape.n('r')} % 4 == 0:", f"    {service}.delete_event_time_timer(ctx.timestamp() + {wait - 1})"]
    manner = t.rng.randrange(3)
    body = [
        "x = self.state.value() or r",
        *t.change(shape, "x"),
        "self.state.update(x)",
        *t.change(shape, "x"),
        *(moved if manner == 0 else []),
        *registered,
        *(deleted if manner == 1 else []),
        *(["yield x"] if t.rng.random() < 0.5 else []),
    ]
    on_timer = ["x = self.state.value()", "if x is not None:"]
    on_timer += [f"    {line}" for line in [*t.change(shape, "x", "timestamp"), "yield x", *t.change(shape, "x", "1")]]
    on_timer += [t.rng.choice(["self.state.clear()", "self.timer.clear()", "    self.state.update(x)"])]
    function = t.define(
        "KeyedProcessFunction",
        open__context=[
            f'self.state = context.get_state(ValueStateDescriptor("x", {_typed_state(t, shape)}))',
            'self.timer = context.get_state(ValueStateDescriptor("timer", Types.LONG()))',
        ],
        process_element__r_ctx=body,
        on_timer__timestamp_ctx=on_timer,
    )
    t.add(
        f"{s.keyed}.process({function}(), {{t}})", s, factor=2, **{**_keyed(t, s), "order": Order.KEYED, "fired": True}
    )


def _ttl(t: Text, descriptor: str) -> list[str]:
    builder = f"StateTtlConfig.new_builder(Time.milliseconds({t.rng.choice([500, 1000, 1500, 1500, 2500])}))"
    renewed = ".update_ttl_on_read_and_write()" if t.rng.random() < 0.5 else ""
    return [f"descriptor = {descriptor}", f"descriptor.enable_time_to_live({builder}{renewed}.build())"]


@kind(order=Order.KEYED, clock=True, factor=3)
def keyed_process_with_time_to_live(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    """An epoch takes 1,000 ms."""
    shape = s.shape
    n, stored = shape.n("r"), _typed_state(t, shape)
    how = t.rng.choice(["value", "list", "map", "reducing"])
    if how == "value":
        descriptor, get = f'ValueStateDescriptor("x", {stored})', "get_state"
        body = ["x = self.state.value()", "if x is None:", "    x = r", "    self.state.update(x)"]
        body += [f"elif {n} % 3:", *("    " + line for line in t.change(shape, "x")), "    self.state.update(x)"]
        body += ["yield x", *t.maybe_change(shape, "x")]
    elif how == "list":
        descriptor, get = f'ListStateDescriptor("x", {stored})', "get_list_state"
        body = [f"values = list(self.state.get()) if {n} % 3 else []", f"if {n} % 2:", "    self.state.add(r)"]
        body += ["else:", "    yield r", "for x in values[-3:]:", *("    " + line for line in t.change(shape, "x"))]
        body += ["    yield x", *([f"if {n} % 7 == 0:", "    self.state.update(values[:2])"])]
    elif how == "map":
        descriptor, get = f'MapStateDescriptor("x", Types.LONG(), {stored})', "get_map_state"
        body = [f"x = self.state.get({n} % 3)", f"if x is None or {n} % 2:", f"    self.state.put({n} % 3, r)"]
        body += ["if x is not None:", *("    " + line for line in t.change(shape, "x")), "    yield x"]
        body += [f"if {n} % 4 == 0:", "    for _, x in sorted(self.state.items(), key=lambda item: item[0]):"]
        body += ["        yield x", *t.maybe_change(shape)]
    else:
        descriptor, get = f'ReducingStateDescriptor("x", {_define_reduce(t, shape)}, {ANY})', "get_reducing_state"
        body = ["self.state.add(r)", *t.change(shape), "x = self.state.get()", *t.change(shape, "x"), "yield x"]
    name = t.function
    opened = [*_ttl(t, descriptor), f"self.state = context.{get}(descriptor)"]
    lines = [f"class {name}(KeyedProcessFunction):", "    def open(self, context):", *("        " + x for x in opened)]
    lines += ["    def process_element(self, r, ctx):", *("        " + line for line in body)]
    t.definitions.append("\n".join(lines))
    t.add(f"{s.keyed}.process({name}(), {{t}})", s, factor=3, **_keyed(t, s))


@kind(order=Order.KEYED, clock=True)
def keyed_process_with_timers_in_processing_time(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    """Those that wait when the input ends do not fire."""
    shape = s.shape
    service, wait = "ctx.timer_service()", t.rng.choice([500, 1000, 1500, 3000])
    moved = [
        "old = self.timer.value()",
        "if old is not None:",
        f"    {service}.delete_processing_time_timer(old)",
        "self.timer.update(due)",
    ]
    body = [
        "x = self.state.value() or r",
        *t.change(shape, "x"),
        "self.state.update(x)",
        f"due = {service}.current_processing_time() + {wait}",
        *(moved if t.rng.random() < 0.4 else []),
        f"{service}.register_processing_time_timer(due)",
        *t.change(shape, "x"),
        *(["yield x"] if t.rng.random() < 0.4 else []),
    ]
    on_timer = ["x = self.state.value()", "if x is not None:"]
    on_timer += [f"    {line}" for line in [*t.change(shape, "x", "timestamp"), "yield x", *t.change(shape, "x", "1")]]
    on_timer += [t.rng.choice(["self.state.clear()", "self.timer.clear()", "    self.state.update(x)"])]
    function = t.define(
        "KeyedProcessFunction",
        open__context=[
            f'self.state = context.get_state(ValueStateDescriptor("x", {_typed_state(t, shape)}))',
            'self.timer = context.get_state(ValueStateDescriptor("timer", Types.LONG()))',
        ],
        process_element__r_ctx=body,
        on_timer__timestamp_ctx=on_timer,
    )
    known = {"order": Order.KEYED, "exact": False, "late": True, "clocked": True, "apart": False, "fired": True}
    t.add(f"{s.keyed}.process({function}(), {{t}})", s, factor=2, **known)


# --- windows ----------------------------------------------------------------------------------------------------------


def _windows(t: Text, s: StreamInfo, stream: str) -> tuple[str, bool]:
    """A windowed stream; says whether its windows merge."""
    time = "Time.milliseconds"
    number = t.rng.randrange(9)
    if number == 0:
        return f"{stream}.count_window({t.rng.randint(1, 4)})", False
    if number == 1:
        return f"{stream}.count_window({t.rng.randint(2, 4)}, {t.rng.randint(1, 3)})", False
    assigner, merges = {
        2: (f"EventTimeSessionWindows.with_gap({time}({t.rng.choice([3, 8, 20])}))", True),
        3: (f"SlidingEventTimeWindows.of({time}(20), {time}({t.rng.choice([10, 7, 20])}))", False),
        # whether a session that ends at a record still gets it depends on when watermarks come
    }.get(
        number if s.exact or number != 2 else 4,
        (f"TumblingEventTimeWindows.of({time}({t.rng.choice([5, 15, 40])}))", False),
    )
    windowed = f"{stream}.window({assigner})"
    if number == 6:
        # nothing ends the windows, and nothing is late for them
        windowed = f"{stream}.window(GlobalWindows.create())"
        return windowed + _trigger(t, f"CountTrigger.of({t.rng.randint(1, 4)})") + _evictor(t), False
    if number >= 7:
        triggers = [f"CountTrigger.of({t.rng.randint(1, 3)})", "EventTimeTrigger.create()"]
        if s.exact:
            triggers.append(f"ContinuousEventTimeTrigger.of({time}({t.rng.choice([3, 7])}))")
        windowed += _trigger(t, t.rng.choice(triggers)) + (_evictor(t) if t.rng.random() < 0.5 else "")
    if s.exact and s.late:
        if t.rng.random() < 0.5:
            windowed += f".allowed_lateness({t.rng.choice([1, 5, 30])})"
        if t.rng.random() < 0.7:
            tag = f"{t.name.upper()}_LATE"
            declared = f", {s.shape.declared()}" if s.shape.typed else ""
            t.definitions.append(f'{tag} = OutputTag("{t.name} late"{declared})')
            windowed += f".side_output_late_data({tag})"
    return windowed, merges


def _trigger(t: Text, trigger: str) -> str:
    return f".trigger({f'PurgingTrigger.of({trigger})' if t.rng.random() < 0.4 else trigger})"


def _evictor(t: Text) -> str:
    kept = f"CountEvictor.of({t.rng.randint(1, 3)}", f"TimeEvictor.of(Time.milliseconds({t.rng.choice([2, 9])})"
    return f".evictor({t.rng.choice(kept)}{t.rng.choice(['', ', True'])}))"


def _finish(t: Text, s: StreamInfo, text: str, factor: float, order: Order = Order.KEYED) -> None:
    known: dict[str, object] = {**_keyed(t, s), "order": order, "fired": True}
    if "count_window" in text or "GlobalWindows" in text:
        # the timestamps of the results are the greatest ones: they are behind all time
        known |= {"exact": False, "late": True}
    t.add(text, s, factor=factor, **known)
    if "side_output_late_data" in text:
        side = replace(s, name=f"{t.name}_late", order=min(s.order, order) if t.parallelism > 1 else s.order)
        t.call += f"\n{side.name} = {t.name}.get_side_output({t.name.upper()}_LATE)"
        t.outputs.append(side)


@kind(order=Order.KEYED, timed=True, factor=2)
def window_reduce(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    windowed, _merges = _windows(t, s, s.keyed)
    function = _define_reduce(t, s.shape)
    if t.rng.random() < 0.3:
        function += f", {_window_function(t, s, 1)}"
        _finish(t, s, f"{windowed}.reduce({function}, {{t}})", 2)
    else:
        _finish(t, s, f"{windowed}.reduce({function})", 1)


@kind(order=Order.KEYED, timed=True, factor=2)
def window_aggregate(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    windowed, _merges = _windows(t, s, s.keyed)
    function = _define_aggregate(t, s.shape)
    if t.rng.random() < 0.3:
        function += f", {_window_function(t, s, 1)}"
    _finish(t, s, f"{windowed}.aggregate({function}, {{t}})", 2)


@kind(order=Order.KEYED, timed=True, factor=2)
def window_apply(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    windowed, _merges = _windows(t, s, s.keyed)
    _finish(t, s, f"{windowed}.apply({_window_function(t, s, 0)}, {{t}})", 2)


@kind(order=Order.KEYED, timed=True, factor=2)
def window_process(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    windowed, merges = _windows(t, s, s.keyed)
    _finish(t, s, f"{windowed}.process({_window_function(t, s, 1, not merges)}, {{t}})", 2)


@kind(order=Order.TOTAL, timed=True, factor=2, fits=lambda s, parallelism: parallelism == 1)
def window_of_all(t: Text, s: StreamInfo, _: StreamInfo) -> None:
    assigner = f"TumblingEventTimeWindows.of(Time.milliseconds({t.rng.choice([5, 15, 40])}))"
    windowed = t.rng.choice([f"{s.name}.window_all({assigner})", f"{s.name}.count_window_all(3)"])
    how = t.rng.randrange(3)
    if how == 0:
        text = f"{windowed}.reduce({_define_reduce(t, s.shape)})"
    else:
        base, head = [
            ("AllWindowFunction", "apply__window_elements"),
            ("ProcessAllWindowFunction", "process__ctx_elements"),
        ][how - 1]
        function = t.define(base, **{head: _body_of_window(t, s.shape)})
        text = f"{windowed}.{'apply' if how == 1 else 'process'}({function}(), {{t}})"
    _finish(t, s, text, 2, Order.TOTAL)


def _body_of_window(t: Text, shape: Shape) -> list[str]:
    one_by_one = [
        "for r in elements:",
        *("    " + line for line in t.change(shape)),
        "    yield r",
        *("    " + line for line in t.maybe_change(shape)),
    ]
    combined = ["x, *rest = list(elements)", "for r in rest:"]
    combined += [f"    {line}" for line in shape.combined("x", "r")]
    return t.rng.choice(
        [
            one_by_one,
            [*combined, *t.change(shape, "x", "1"), "yield x", *t.change(shape, "x", "2"), "yield x"],
            [*combined, "return [x]"],
            ["elements = list(elements)", *t.change(shape, "elements[0]", "3"), "return elements"],
        ]
    )


def _window_function(t: Text, s: StreamInfo, process: int, window_state: bool = False) -> str:
    shape = s.shape
    if not process:
        return t.define("WindowFunction", apply__key_window_elements=_body_of_window(t, shape)) + "()"
    if t.rng.random() < 0.5:
        return t.define("ProcessWindowFunction", process__key_ctx_elements=_body_of_window(t, shape)) + "()"
    store = "ctx.window_state()" if window_state and t.rng.random() < 0.5 else "ctx.global_state()"
    body = [
        "elements = list(elements)",
        f'state = {store}.get_state(ValueStateDescriptor("x", {_typed_state(t, shape)}))',
        "x = state.value() or elements[0]",
        *t.change(shape, "x", "1"),
        "state.update(x)",
        *t.change(shape, "x", "2"),
        "yield x",
        *t.change(shape, "x", "3"),
        "yield from elements",
    ]
    return t.define("ProcessWindowFunction", process__key_ctx_elements=body) + "()"


# --- two inputs -------------------------------------------------------------------------------------------------------


def _to_shape(t: Text, stream: StreamInfo, shape: Shape) -> str:
    """The stream in another shape."""
    if stream.shape == shape:
        return stream.name
    new = shape.new(stream.shape.k("r"), stream.shape.n("r"))
    declared = f", {shape.declared()}" if shape.typed else ""
    return f"{stream.name}.map(lambda r: {new}{declared})"


def _both(t: Text, one: StreamInfo, other: StreamInfo, **known: object) -> dict[str, object]:
    """What is known of the output of an operator with these inputs."""
    apart = _apart(one, other, t.parallelism)
    order = min(one.order, other.order, Order.KEYED) if apart else Order.NONE
    return {
        "order": order,
        "exact": apart and one.exact and other.exact,
        "late": one.late or other.late,
        "keys": one.keys | other.keys,
        "size": one.size + other.size,
        "origins": one.origins | other.origins,
        "clocked": one.clocked or other.clocked,
        "fired": one.fired or other.fired,
        **known,
    }


@kind(inputs=2, fits=lambda s, _: not s.idles)
def union_of_two(t: Text, s: StreamInfo, other: StreamInfo) -> None:
    function = t.either("MapFunction", "map", [*t.change(s.shape), "return r"])
    text = f"{s.name}.union({_to_shape(t, other, s.shape)}).map({function}, {{t}})"
    known = _both(t, s, other)
    if not s.keys & other.keys:
        known["order"] = max(known["order"], min(s.order, other.order, Order.KEYED))  # type: ignore[call-overload]
    t.add(text, s, **known)


@kind(inputs=2)
def connected_map(t: Text, s: StreamInfo, other: StreamInfo) -> None:
    a, b = s.shape, other.shape
    new = a.make(b.k("r"), b.n("r"), a.make_part("5", a.new_contents(b.n("r"))))
    if b == a:
        new = "r"
    if t.rng.random() < 0.5:
        function = t.define(
            "CoMapFunction",
            map1__r=[*t.change(a), "return r"],
            map2__r=[*t.change(b), f"return {new}"],
        )
        text = f"{s.name}.connect({other.name}).map({function}(), {{t}})"
    else:
        method = t.rng.choice(["flat_map", "process"])
        yields = [["yield r", *t.change(a), "yield r"], [*t.change(b), f"new = {new}", "yield new"]]
        if method == "flat_map":
            function = t.define("CoFlatMapFunction", flat_map1__r=yields[0], flat_map2__r=yields[1])
        else:
            function = t.define(
                "CoProcessFunction", process_element1__r_ctx=yields[0], process_element2__r_ctx=yields[1]
            )
        text = f"{s.name}.connect({other.name}).{method}({function}(), {{t}})"
    t.add(text, s, factor=2, **_both(t, s, other))


@kind(inputs=2, order=Order.KEYED)
def keyed_connected_map_with_kept(t: Text, s: StreamInfo, other: StreamInfo) -> None:
    """Each input keeps a record of each key, which it changes and returns."""
    a, b = s.shape, other.shape
    new = a.make(b.k("kept"), b.n("kept"), a.make_part("5", a.new_contents(b.n("r"))))
    if b == a:
        new = "kept"
    function = t.define(
        "CoMapFunction",
        open__context="self.kept = {}",
        map1__r=[f"kept = self.kept.setdefault((1, {a.k('r')}), r)", *t.change(a, "kept"), "return kept"],
        map2__r=[f"kept = self.kept.setdefault((2, {b.k('r')}), r)", *t.change(b, "kept"), f"return {new}"],
    )
    text = f"{s.keyed}.connect({other.keyed}).map({function}(), {{t}})"
    t.add(text, s, **_both(t, s, other))


@kind(inputs=2, order=Order.KEYED, timed=True)
def keyed_connected_process(t: Text, s: StreamInfo, other: StreamInfo) -> None:
    """Each input has a state of its own; both are emitted when the input ends."""
    a, b = s.shape, other.shape
    new = a.make(b.k("x"), b.n("x"), a.make_part("5", a.new_contents(b.n("x"))))
    if b == a:
        new = "x"
    timer = f"ctx.timer_service().register_event_time_timer({END_MS})"

    def element(index: int, shape: Shape, result: str) -> list[str]:
        return [
            f"x = self.state{index}.value() or r",
            *t.change(shape, "x"),
            f"self.state{index}.update(x)",
            *t.change(shape, "x"),
            f"yield {result}",
            *t.maybe_change(shape, "x"),
            *([timer] if index == 1 else []),
        ]

    function = t.define(
        "KeyedCoProcessFunction",
        open__context=[
            f'self.state1 = context.get_state(ValueStateDescriptor("x1", {_typed_state(t, a)}))',
            f'self.state2 = context.get_state(ValueStateDescriptor("x2", {_typed_state(t, b)}))',
        ],
        process_element1__r_ctx=element(1, a, "x"),
        process_element2__r_ctx=element(2, b, new),
        on_timer__timestamp_ctx=[
            "x = self.state1.value()",
            *t.change(a, "x", "1"),
            "yield x",
            "x = self.state2.value()",
            "if x is not None:",
            *("    " + line for line in t.change(b, "x", "1")),
            f"    yield {new}",
        ],
    )
    text = f"{s.keyed}.connect({other.keyed}).process({function}(), {{t}})"
    t.add(text, s, factor=2, **_both(t, s, other))


@kind(inputs=2, order=Order.KEYED, timed=True, exact=True, apart=True)
def keyed_connected_with_watermarks(t: Text, s: StreamInfo, other: StreamInfo) -> None:
    """Each result says what the watermark is."""
    a, b = s.shape, other.shape
    now, wait = "max(ctx.timer_service().current_watermark(), -1)", t.rng.choice([1, 4, 15])

    def result(key: str, number: str) -> str:
        return f"yield {a.make(key, number, a.make_part(now, a.new_contents(number)))}"

    timer = f"ctx.timer_service().register_event_time_timer(ctx.timestamp() + {wait})"
    function = t.define(
        "KeyedCoProcessFunction",
        process_element1__r_ctx=[result(a.k("r"), a.n("r")), timer],
        process_element2__r_ctx=[result(b.k("r"), b.n("r")), timer],
        on_timer__timestamp_ctx=[result("ctx.get_current_key()", "timestamp")],
    )
    text = f"{s.keyed}.connect({other.keyed}).process({function}(), {{t}})"
    order = min(s.order, other.order, Order.KEYED)
    t.add(text, s, factor=2, **_both(t, s, other, order=order, late=True))


@kind(inputs=2, order=Order.KEYED, second=Order.TOTAL, timed=True)
def keyed_broadcast(t: Text, s: StreamInfo, other: StreamInfo) -> None:
    """Rules are kept in broadcast state; records meet them when the input ends."""
    a, b = s.shape, other.shape
    rules = f"{t.name.upper()}_RULES"
    t.definitions.append(f'{rules} = MapStateDescriptor("rules", Types.LONG(), {_typed_state(t, b)})')
    body = ["self.state.add(r)", *t.change(a), "yield r", f"ctx.timer_service().register_event_time_timer({END_MS})"]
    new = a.make("ctx.get_current_key()", b.n("rule"), a.make_part("5", a.new_contents(b.n("rule"))))
    if b == a:
        new = "rule"
    on_timer = [
        "for r in self.state.get():",
        *("    " + line for line in t.change(a)),
        "    yield r",
        f"for _, rule in sorted(ctx.get_broadcast_state({rules}).items(), key=lambda item: item[0])[:2]:",
        *("    " + line for line in t.change(b, "rule", "2")),
        f"    yield {new}",
    ]
    function = t.define(
        "KeyedBroadcastProcessFunction",
        open__context=f'self.state = context.get_list_state(ListStateDescriptor("x", {_typed_state(t, a)}))',
        process_element__r_ctx=body,
        process_broadcast_element__r_ctx=[
            f"rules = ctx.get_broadcast_state({rules})",
            f"old = rules.get({b.n('r')} % 3)",
            "if old is None:",
            f"    rules.put({b.n('r')} % 3, r)",
            *t.change(b),
        ],
        on_timer__timestamp_ctx=on_timer,
    )
    text = f"{s.keyed}.connect({other.name}.broadcast({rules})).process({function}(), {{t}})"
    t.add(text, s, factor=3, **_both(t, s, other))


# records with the time of the watermark still find what Flink has just dropped
@kind(inputs=2, order=Order.KEYED, timed=True, factor=3, fits=lambda s, _: not s.late)
def interval_join(t: Text, s: StreamInfo, other: StreamInfo) -> None:
    a, b = s.shape, other.shape
    result = [*t.change(a, "left", b.n("right")), *t.change(b, "right", "1"), "yield left", *t.change(a, "left", "1")]
    if b == a:
        result += ["yield right"]
    function = t.define("ProcessJoinFunction", process_element__left_right_ctx=result)
    between = f"between(Time.milliseconds({t.rng.choice([-10, -3, 0])}), Time.milliseconds({t.rng.choice([0, 5, 12])}))"
    text = f"{s.keyed}.interval_join({other.keyed}).{between}.process({function}(), {{t}})"
    t.add(text, s, factor=3, **_both(t, s, other))


# in Flink, too, windows over two streams read their union, whose inputs are channels of one input
@kind(inputs=2, order=Order.KEYED, timed=True, factor=3, fits=lambda s, _: not s.idles)
def window_join(t: Text, s: StreamInfo, other: StreamInfo) -> None:
    a, b = s.shape, other.shape
    changed = [*t.change(a, "left", b.n("right")), *t.change(b, "right", "1")]
    how = t.rng.randrange(3)
    if how == 0:
        function = t.plain("left, right", [*changed, "return left"])
    elif how == 1:
        function = t.define("JoinFunction", join__left_right=[*changed, "return left"]) + "()"
    else:
        body = [*changed, "yield left", *t.change(a, "left", "1"), *(["yield right"] if a == b else [])]
        function = t.define("FlatJoinFunction", join__left_right=body) + "()"
    text = _of_both(t, s, other, "join") + f".apply({function}, {{t}})"
    t.add(text, s, factor=3, **_both(t, s, other))


@kind(inputs=2, order=Order.KEYED, timed=True, factor=2, fits=lambda s, _: not s.idles)
def co_group(t: Text, s: StreamInfo, other: StreamInfo) -> None:
    a, b = s.shape, other.shape
    body = [
        "for r in first:",
        *("    " + line for line in t.change(a, value="len(second)")),
        "    yield r",
        *("    " + line for line in t.change(a, value="1")),
        "for r in second:",
        *("    " + line for line in t.change(b, value="len(first)")),
        f"    yield {'r' if a == b else a.new(b.k('r'), b.n('r'))}",
    ]
    function = t.define("CoGroupFunction", co_group__first_second=body)
    text = _of_both(t, s, other, "co_group") + f".apply({function}(), {{t}})"
    t.add(text, s, factor=2, **_both(t, s, other))


def _of_both(t: Text, s: StreamInfo, other: StreamInfo, method: str) -> str:
    size = t.rng.choice([5, 15, 40])
    window = f"TumblingEventTimeWindows.of(Time.milliseconds({size}))"
    if t.rng.random() < 0.4:
        window = f"SlidingEventTimeWindows.of(Time.milliseconds({size}), Time.milliseconds({size // 2 + 1}))"
    return f"{s.name}.{method}({other.name}).where({s.k}).equal_to({other.k}).window({window})"
