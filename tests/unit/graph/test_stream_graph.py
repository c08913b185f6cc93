"""What is found wrong with a program before it runs."""

from __future__ import annotations

import pytest

from flinkish.errors import DuplicateUidError, ProgramError
from tests.support.programs import job_of, new_environment


def test_a_uid_that_is_used_twice_is_named_with_both_operators() -> None:
    env = new_environment()
    env.from_collection([1]).map(lambda n: n).name("first").uid("same").map(lambda n: n).name("second").uid("same")
    with pytest.raises(DuplicateUidError) as error:
        env.get_execution_plan()
    assert str(error.value) == (
        "the uid 'same' is used twice [operators 'first' (node 2) and 'second' (node 3)]; "
        "expected a uid of its own for each operator; change one of the uid(...) calls"
    )


def test_a_program_without_operators_cannot_be_executed() -> None:
    env = new_environment()
    env.from_collection([1])  # nobody reads it
    with pytest.raises(ProgramError, match="No operators defined in streaming topology. Cannot execute."):
        env.execute()


def test_parallelisms_that_do_not_fit_are_refused_with_the_operators() -> None:
    env = new_environment(parallelism=2)
    env.from_collection([1]).forward().map(lambda n: n)
    with pytest.raises(ProgramError) as error:
        job_of(env)
    assert "forward partitioning does not allow change of parallelism" in str(error.value)
    assert "from 'Source: Collection Source' (1) to 'Map' (2)" in str(error.value)
    env = new_environment(parallelism=4)
    env.from_collection([1]).key_by(lambda n: n).sum().set_max_parallelism(2).uid("sums")
    with pytest.raises(ProgramError, match=r"parallelism 4 is above the max parallelism 2 .*uid sums"):
        job_of(env)


def test_without_generated_uids_every_operator_needs_one() -> None:
    env = new_environment(pipeline__auto_generate_uids="false")
    mapped = env.from_collection([1]).uid("numbers").map(lambda n: n)
    with pytest.raises(ProgramError, match=r"no UID or hash has been assigned to an operator \[operator 'Map'"):
        env.explain()
    mapped.uid("mapped")
    assert "mapped" in env.explain()


def test_a_uid_hash_goes_before_the_uid() -> None:
    env = new_environment()
    env.from_collection([1]).map(lambda n: n).uid("mapped").set_uid_hash("0123456789ABCDEF" * 2)
    assert job_of(env).vertices[0].operators[1].uid == "0123456789abcdef" * 2
