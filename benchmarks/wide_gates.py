"""What it costs a subtask to have many inputs: microseconds per watermark of each input, for 2 to 800 of them.

Every input tells a hundred watermarks, in time order as an input gate consumes them. Pure Python, without Spark.

    python -m benchmarks.wide_gates [--inputs 2 100 400 800]
"""

from __future__ import annotations

import argparse
import time

from flinkish.runtime.watermark_valve import WatermarkValve

WATERMARKS = 100


def us_per_watermark(inputs: int) -> float:
    """A valve whose inputs tell their watermarks in turn."""
    valve = WatermarkValve()
    for name in range(inputs):
        valve.add(name)
    begin_s = time.perf_counter()
    for watermark_ms in range(WATERMARKS):
        for name in range(inputs):
            valve.advance(name, watermark_ms)
    seconds = time.perf_counter() - begin_s
    assert valve.combined_ms == WATERMARKS - 1
    return seconds / (inputs * WATERMARKS) * 1e6


def main() -> None:
    """One line for each number of inputs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, nargs="*", default=[2, 100, 400, 800])
    for inputs in parser.parse_args().inputs:
        print(f"{inputs:>5} inputs: {us_per_watermark(inputs):6.2f} us per watermark")


if __name__ == "__main__":
    main()
