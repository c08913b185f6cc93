"""Tools for testing programs and functions in one process, without Spark, on the runtime that they have on Spark.

* `ProgramTestHarness` runs a whole program, with a manual clock, simulated crashes and savepoints, and records what
  operators receive and emit.
* `ProcessFunctionTestHarnesses`, `harness_of` and the harness classes run one operator.
* `TestingSource` has marks among its records: `Pause`, `Watermark`, `CrashOnce`, `End`. `TestingSink` keeps the
  committed records.

They need no test framework. See docs/testing.md.
"""

from flinkish.runtime.phases import ManualClock, Phase
from flinkish.testing.doubles import (
    CrashOnce,
    End,
    Pause,
    SimulatedCrash,
    StreamRecord,
    TestingSink,
    TestingSource,
    Watermark,
    WatermarkStatus,
)
from flinkish.testing.operator_harness import (
    BroadcastOperatorTestHarness,
    KeyedBroadcastOperatorTestHarness,
    KeyedOneInputStreamOperatorTestHarness,
    KeyedTwoInputStreamOperatorTestHarness,
    OneInputStreamOperatorTestHarness,
    OperatorSubtaskState,
    StreamOperatorTestHarness,
    TwoInputStreamOperatorTestHarness,
)
from flinkish.testing.operators import ProcessFunctionTestHarnesses, harness_of
from flinkish.testing.program import ProgramSavepoint, ProgramTestHarness

__all__ = [
    "BroadcastOperatorTestHarness",
    "CrashOnce",
    "End",
    "KeyedBroadcastOperatorTestHarness",
    "KeyedOneInputStreamOperatorTestHarness",
    "KeyedTwoInputStreamOperatorTestHarness",
    "ManualClock",
    "OneInputStreamOperatorTestHarness",
    "OperatorSubtaskState",
    "Pause",
    "Phase",
    "ProcessFunctionTestHarnesses",
    "ProgramSavepoint",
    "ProgramTestHarness",
    "SimulatedCrash",
    "StreamOperatorTestHarness",
    "StreamRecord",
    "TestingSink",
    "TestingSource",
    "TwoInputStreamOperatorTestHarness",
    "Watermark",
    "WatermarkStatus",
    "harness_of",
]
