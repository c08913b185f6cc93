"""Counts the words of a few lines, as the first example of every tutorial does."""

import argparse
import logging
import sys

from flinkish.common import Types
from flinkish.datastream import RuntimeExecutionMode, StreamExecutionEnvironment

LINES = ["To be, or not to be,--that is the question:--", "Whether 'tis nobler in the mind to suffer"]


def split(line):
    yield from line.lower().split()


def word_count(parallelism):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.set_parallelism(parallelism)
    words = env.from_collection(LINES, type_info=Types.STRING()).flat_map(split, output_type=Types.STRING())
    ones = words.map(lambda word: (word, 1), output_type=Types.TUPLE([Types.STRING(), Types.INT()]))
    counts = ones.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    counts.print()
    env.execute("word count")


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser()
    parser.add_argument("--parallelism", type=int, default=1)
    known, _ = parser.parse_known_args(sys.argv[1:])
    word_count(known.parallelism)
