"""What must stay the same of a program from start to start in one job directory, and what differs between two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from operator import attrgetter

from flinkish.common.options.flinkish import SPARK_PARTITIONS
from flinkish.connectors.generated import NumberedSplitSource
from flinkish.jobdir.layout import ChainedOperator, Program, StoredVertex, Structure
from flinkish.runtime.job.deployment import JobDescriptor, VertexDescriptor

#: What follows the uid in the text of a source.
_OF_SOURCE = " (parallelism "


def describe_structure(job: JobDescriptor, partitions: int) -> Structure:
    """The properties of a program that must stay the same. ``partitions``: of Spark; 0 in the minicluster."""
    return Structure(
        sinks=sorted(sink.uid for sink in job.sinks if sink.uid_given),
        partitions=partitions,
        sources=[_source_of(vertex) for vertex in job.vertices if vertex.level == 0],
        vertices=[
            StoredVertex(
                vertex.id,
                vertex.head.uid,
                vertex.level,
                vertex.parallelism,
                vertex.max_parallelism,
                vertex.keyed,
                _chained_operators(vertex),
            )
            for vertex in job.vertices
            if vertex.level > 0
        ],
    )


def describe_program(job: JobDescriptor) -> Program:
    """The properties by which a program is recognized once its job has finished: names and uids."""
    return Program(job.name, sorted({op.uid: op.name for v in job.vertices for op in v.operators}.items()))


def levels_of(structure: Structure) -> int:
    """The number of levels behind the sources of the program with this structure."""
    return max((vertex.level for vertex in structure.vertices), default=0)


def vertex_uids(structure: Structure) -> dict[int, str]:
    """Vertex id -> uid of its head, in the program with this structure: vertices are numbered from the sources on."""
    behind = {vertex.id: vertex.uid for vertex in structure.vertices}
    return {**dict(enumerate(source_uids(structure))), **behind}


def source_uids(structure: Structure) -> list[str]:
    """The uids of the sources of the program with this structure, in the order of their vertices."""
    return [source.rpartition(_OF_SOURCE)[0] for source in structure.sources]


def parallelism_of(structure: Structure) -> dict[str, int]:
    """The uid of the head of each task -> its parallelism, of the program with this structure."""
    sources = (source.rpartition(_OF_SOURCE) for source in structure.sources)
    found = {uid: int(rest.rstrip(")").partition(",")[0]) for uid, _, rest in sources}
    return found | {vertex.uid: vertex.parallelism for vertex in structure.vertices}


def _source_of(vertex: VertexDescriptor) -> str:
    """A source as text, with what the assignment of its splits to subtasks depends on: its parallelism and, for a
    generated source, the number of splits."""
    splits = f", {vertex.source.splits} splits" if isinstance(vertex.source, NumberedSplitSource) else ""
    return f"{vertex.head.uid}{_OF_SOURCE}{vertex.parallelism}{splits})"


#: What must stay the same of a task behind a shuffle.
_SAME = tuple(one.name for one in fields(StoredVertex) if one.name != "operators")


def differences_between(before: Structure, now: Structure) -> list[str]:
    """What must be the same in two programs and is not, in words."""
    found: list[str] = []
    old, new = ({vertex.uid: vertex for vertex in one.vertices} for one in (before, now))
    found.extend(f"operator '{uid}' is gone" for uid in old if uid not in new)
    found.extend(f"operator '{uid}' is new" for uid in new if uid not in old)
    for uid in (uid for uid in old if uid in new):
        was, is_ = attrgetter(*_SAME)(old[uid]), attrgetter(*_SAME)(new[uid])
        found.extend(f"{name} of '{uid}' was {a} and is {b}" for name, a, b in zip(_SAME, was, is_) if a != b)
    # directories of earlier versions do not say which sinks there were
    gone = [uid for uid in before.sinks if uid not in now.sinks]
    found.extend(f"sink '{uid}' is gone" for uid in gone)
    found.extend(f"sink '{uid}' is new" for uid in now.sinks if gone and uid not in before.sinks)
    if before.sources != now.sources:
        found.append(f"the sources were {before.sources} and are {now.sources}")
    if not found and before.partitions != now.partitions:
        # there are as many subtasks as before, so it is the setting that differs
        found.append(
            f"the number of Spark partitions ({SPARK_PARTITIONS.key}) was {before.partitions} and is {now.partitions}"
        )
    return found


def _chained_operators(vertex: VertexDescriptor) -> list[ChainedOperator]:
    """The operators of a task but its head."""
    return [
        ChainedOperator(
            operator.uid,
            operator.name,
            operator.uid_given,
            sink=operator.sink is not None,
            stateful=operator.factory.has_operator_state or operator.factory.guarded,
        )
        for operator in vertex.operators[1:]
    ]


def lost_operators(
    before: Mapping[str, list[ChainedOperator]], now: Mapping[str, list[ChainedOperator]], reported: set[str]
) -> tuple[dict[str, str], list[str]]:
    """Compare the operators that are not the heads of their tasks, of two programs.

    Args:
        before: the uid of the head of each task -> its other operators, of the program that has run so far.
        now: those of the program that is to run.
        reported: the uids of the operators of which tasks have reported state.

    Returns:
        uid -> what has become of the operator, for those whose state would be lost; and what is to be done about those
        whose state another operator may get, as their uids are generated.
    """
    lost: dict[str, str] = {}
    taken: list[str] = []
    places = {operator.uid: (head, operator.uid_given) for head, chain in now.items() for operator in chain}
    for head, chain in before.items():
        for operator in chain:
            uid = operator.uid
            if head not in now or not operator.stateful and uid not in reported:
                continue
            place, given = places.get(uid, (None, False))
            if place == head:
                if not given and not operator.uid_given and _uids(chain) != _uids(now[head]):
                    taken.append(
                        f"the operators in the task of '{head}' were {_uids(chain)} and are {_uids(now[head])}, and "
                        f"the uid '{uid}' of one that has state was generated: give that operator uid('{uid}') and "
                        "the others uids of their own"
                    )
                continue
            what = f"operator '{uid}' ({operator.name}), which has state,"
            if place is None and uid not in now:
                lost[uid] = f"{what} is gone from the task of '{head}'"
            else:
                lost[uid] = f"{what} was in the task of '{head}' and is in that of '{place or uid}'"
    return lost, taken


def _uids(chain: Iterable[ChainedOperator]) -> list[str]:
    return [operator.uid for operator in chain if not operator.sink]
