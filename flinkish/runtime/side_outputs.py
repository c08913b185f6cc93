"""Emits the results of user functions: first those for side outputs, then those for the main output, each as one batch.

A result that is a tuple whose first item is an OutputTag goes to that side output. If nothing consumes that side
output, the result is dropped, as in Flink.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flinkish.common.detach import SHARED, SHARED_IF_FLAT, flat_handed_over, handed_over
from flinkish.common.typeinfo.base import BatchConverter
from flinkish.core.output_tag import OutputTag
from flinkish.runtime.operator import Output

#: Converts the values of a whole batch to the declared type of the main output.
Converter = Callable[[list[Any]], list[Any]]


def hand_over_rule(converter: Converter | None, output: Output) -> tuple[set[type], Callable[..., Any]]:
    """The classes of results that are handed over as they are, and what hands over the others: with a declared type
    whose parts cannot change, tuples need no look. Results for side outputs are not converted, and what does not fit
    its type passes as it is if ``converter`` lets it (`BatchConverter.on_misfit`)."""
    if isinstance(converter, BatchConverter) and converter.type_info.is_flat and not output.has_sides:
        if converter.on_misfit is None:
            return SHARED_IF_FLAT, flat_handed_over
    return SHARED, handed_over


def emit(results: list[Any], timestamps: list[int] | None, output: Output, converter: Converter | None = None) -> None:
    """Emit results that may be tagged, with their parallel timestamps. An output without results gets no batch."""
    if OutputTag.exists:
        tagged = [i for i, result in enumerate(results) if type(result) is tuple and _is_tagged(result)]
        if tagged:
            results, timestamps = _emit_sides(results, timestamps, tagged, output)
    if results:
        output.collect(results if converter is None else converter(results), timestamps)


def _is_tagged(result: tuple[Any, ...]) -> bool:
    return len(result) > 0 and isinstance(result[0], OutputTag)


def _emit_sides(
    results: list[Any], timestamps: list[int] | None, tagged: list[int], output: Output
) -> tuple[list[Any], list[int] | None]:
    """Emit the results for side outputs; returns the results and timestamps that are left for the main output."""
    sides: dict[str, list[int]] = {}
    for index in tagged:
        tag_id = results[index][0].tag_id
        sides.setdefault(tag_id, []).append(index)
    for tag_id, indices in sides.items():
        times = None if timestamps is None else [timestamps[index] for index in indices]
        output.collect_side(tag_id, [results[index][1] for index in indices], times)
    gone = {index for indices in sides.values() for index in indices}
    if not gone:
        return results, timestamps
    main = [result for index, result in enumerate(results) if index not in gone]
    if timestamps is not None:
        timestamps = [timestamp for index, timestamp in enumerate(timestamps) if index not in gone]
    return main, timestamps
