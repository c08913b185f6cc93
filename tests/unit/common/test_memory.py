"""The areas of the memory of a TaskManager, against the numbers of Flink: those that it prints, those of its
documentation, and those of its own tests of the derivation."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from flinkish.common.configuration import Configuration
from flinkish.common.memory import Areas, areas_of
from flinkish.errors import ConfigurationError

MIB = 1 << 20


def derived(settings: Mapping[str, str]) -> Areas | None:
    """The areas of ``taskmanager.memory.<key>``."""
    return areas_of(Configuration.from_dict({f"taskmanager.memory.{key}": text for key, text in settings.items()}))


#: Settings -> the areas in MiB that Flink derives from them.
TABLE: dict[str, tuple[dict[str, str], dict[str, float]]] = {
    "the size of Flink's own configuration file": (
        {"process.size": "1728m"},
        {
            "process": 1728,
            "flink": 1280,
            "framework_heap": 128,
            "task_heap": 384,
            "framework_off_heap": 128,
            "task_off_heap": 0,
            "network": 128,
            "managed": 512,
            "jvm_metaspace": 256,
            "jvm_overhead": 192,
        },
    ),
    "the same by Flink's total": (
        {"flink.size": "1280m"},
        {"process": 1728, "task_heap": 384, "network": 128, "managed": 512, "jvm_overhead": 192},
    ),
    "the total of a large process": (
        {"process.size": "10g"},
        {"jvm_overhead": 1024, "flink": 8960, "managed": 3584, "network": 896, "task_heap": 4224},
    ),
    "task heap and managed memory": (
        {"task.heap.size": "100m", "managed.size": "200m"},
        # 556 MiB without network memory, a ninth of which is less than its minimum
        {"network": 64, "flink": 620, "jvm_overhead": 192, "process": 1068},
    ),
    "task heap and managed memory within Flink's total": (
        {"flink.size": "1280m", "task.heap.size": "100m", "managed.size": "200m", "network.max": "1g"},
        {"network": 724, "managed": 200, "task_heap": 100, "process": 1728},
    ),
    "all within the total of the process": (
        {"process.size": "1536m", "flink.size": "1088m", "managed.size": "200m"},
        {"jvm_overhead": 192, "network": 108.8, "managed": 200, "task_heap": 523.2},
    ),
    "task heap within Flink's total": (
        {"flink.size": "1000m", "task.heap.size": "200m", "managed.fraction": "0.4"},
        {"managed": 400, "network": 144, "task_heap": 200},
    ),
    "memory off the heap": (
        {"flink.size": "1280m", "task.off-heap.size": "100m", "framework.off-heap.size": "28m"},
        {"task_off_heap": 100, "framework_off_heap": 28, "task_heap": 384},
    ),
    "an overhead between its bounds": (
        {"process.size": "1000m", "jvm-overhead.min": "64m", "jvm-overhead.max": "128m"},
        {"jvm_overhead": 100},
    ),
    "an overhead below its minimum": (
        {"process.size": "1000m", "jvm-overhead.min": "128m", "jvm-overhead.max": "256m"},
        {"jvm_overhead": 128},
    ),
    "an overhead that is the rest": (
        {"process.size": "1400m", "task.heap.size": "100m", "managed.size": "300m", "jvm-metaspace.size": "256m"},
        # 656 MiB without network memory, and a ninth more: 728.9
        {"network": 72.89, "jvm_overhead": 1400 - 728.89 - 256},
    ),
    "a size with a blank": ({"process.size": "1 gb"}, {"process": 1024, "jvm_overhead": 192}),
    "a minimum that is the maximum": (
        {"process.size": "2g", "network.min": "300m", "network.max": "300m"},
        {"network": 300, "flink": 1587.2},
    ),
}


@pytest.mark.parametrize("case", TABLE)
def test_the_areas_are_those_of_flink(case: str) -> None:
    settings, expected = TABLE[case]
    areas = derived(settings)
    assert areas is not None
    assert {name: getattr(areas, name) / MIB for name in expected} == pytest.approx(expected, abs=0.01)


def test_the_areas_are_printed_as_flink_prints_them() -> None:
    areas = derived({"process.size": "1728m"})
    assert areas is not None
    # what Flink 1.12 to 2.x print with their own configuration file, byte for byte
    assert areas.lines() == [
        "Final TaskExecutor Memory configuration:",
        "  Total Process Memory:          1.688gb (1811939328 bytes)",
        "    Total Flink Memory:          1.250gb (1342177280 bytes)",
        "      Total JVM Heap Memory:     512.000mb (536870902 bytes)",
        "        Framework:               128.000mb (134217728 bytes)",
        "        Task:                    384.000mb (402653174 bytes)",
        "      Total Off-heap Memory:     768.000mb (805306378 bytes)",
        "        Managed:                 512.000mb (536870920 bytes)",
        "        Total JVM Direct Memory: 256.000mb (268435458 bytes)",
        "          Framework:             128.000mb (134217728 bytes)",
        "          Task:                  0 bytes",
        "          Network:               128.000mb (134217730 bytes)",
        "    JVM Metaspace:               256.000mb (268435456 bytes)",
        "    JVM Overhead:                192.000mb (201326592 bytes)",
    ]


#: Settings that contradict each other -> what the error says.
REFUSED: dict[str, tuple[dict[str, str], list[str]]] = {
    "the process is less than its JVM": (
        {"process.size": "400m"},
        ["'taskmanager.memory.process.size'", "jvm-metaspace.size 256 MiB", "48.000mb"],
    ),
    "Flink's total is less than its areas": (
        {"flink.size": "300m"},
        ["'taskmanager.memory.flink.size'", "framework.heap.size 128 MiB", "managed 120 MiB"],
    ),
    "managed memory above Flink's total": (
        {"flink.size": "1g", "managed.size": "2g"},
        ["'taskmanager.memory.flink.size'", "managed.size 2.0 GiB"],
    ),
    "sizes that leave too little network memory": (
        {"flink.size": "600m", "task.heap.size": "200m", "managed.size": "100m"},
        ["taskmanager.memory.network.min", "44.000mb", "from 64.000mb"],
    ),
    "sizes that leave too much network memory": (
        {"flink.size": "2g", "task.heap.size": "100m", "managed.size": "100m", "network.max": "1g"},
        ["taskmanager.memory.network.max", "to 1024.000mb"],
    ),
    "the two totals do not fit": (
        {"process.size": "1g", "flink.size": "1g"},
        ["taskmanager.memory.jvm-overhead.min", "256.000mb (268435456 bytes) too little"],
    ),
    "the two totals leave too much": (
        {"process.size": "4g", "flink.size": "1g"},
        ["taskmanager.memory.jvm-overhead.max", "from 192.000mb"],
    ),
    "a minimum above the maximum": (
        {"process.size": "2g", "network.min": "200m", "network.max": "50m"},
        ["taskmanager.memory.network.min", "taskmanager.memory.network.max"],
    ),
    "a fraction of one": ({"process.size": "2g", "managed.fraction": "1"}, ["'taskmanager.memory.managed.fraction'"]),
    "a fraction below 0": ({"process.size": "2g", "network.fraction": "-0.1"}, ["network.fraction", "-0.1"]),
    "a fraction that is no number": ({"process.size": "2g", "managed.fraction": "nan"}, ["managed.fraction"]),
    "a negative size": ({"process.size": "-1g"}, ["'taskmanager.memory.process.size'", "such as '64mb'"]),
    "a size in another unit": ({"process.size": "1 gib"}, ["'taskmanager.memory.process.size'", "units b, kb, mb, gb"]),
    "no size from which it follows": (
        {"task.heap.size": "1g"},
        ["'taskmanager.memory.task.heap.size'", "taskmanager.memory.process.size"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_sizes_that_contradict_each_other_are_refused_with_their_key(case: str) -> None:
    settings, said = REFUSED[case]
    with pytest.raises(ConfigurationError) as raised:
        derived(settings)
    for part in said:
        assert part in raised.value.message


@pytest.mark.parametrize("settings", [{}, {"managed.size": "1 gb"}])
def test_nothing_follows_where_no_size_is_set(settings: dict[str, str]) -> None:
    assert derived(settings) is None


def test_no_area_is_negative_and_they_add_up_whatever_is_set() -> None:
    for mib in range(1100, 9000, 331):
        for fraction in ("0", "0.15", "0.4"):
            areas = derived({"process.size": f"{mib}m", "managed.fraction": fraction})
            assert areas is not None
            assert min(vars(areas).values()) >= 0
            assert areas.process == mib * MIB
            assert areas.process == sum(vars(areas).values())
