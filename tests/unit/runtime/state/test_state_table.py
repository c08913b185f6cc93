"""State tables: live dicts, and what was changed."""

from __future__ import annotations

from flinkish.runtime.state.state_table import StateTable


def test_a_namespace_gives_the_same_live_dict_each_time() -> None:
    table = StateTable("s", "value")
    table.namespace(None)["a"] = 1
    assert table.namespace(None) == {"a": 1}
    assert table.existing(None) is table.namespace(None)
    assert table.existing("other") is None


def test_one_and_one_point_zero_and_true_are_one_key() -> None:
    table = StateTable("s", "value")
    values = table.namespace(None)
    values[1] = "int"
    values[1.0] = "float"
    values[True] = "bool"
    assert values == {1: "bool"}
    table.mark_all(None, [1, 1.0, True])
    assert table.changed_keys() == {(None, 1)}


def test_changes_are_what_was_marked_until_they_are_forgotten() -> None:
    table = StateTable("s", "value")
    table.mark_all(None, [])
    assert not table.changed
    table.mark(None, "a")
    table.mark_all("w", ["b", "c", "b"])
    assert table.changed_keys() == {(None, "a"), ("w", "b"), ("w", "c")}
    table.forget_changes()
    assert not table.changed and table.changed_keys() == set()


def test_remove_marks_only_what_was_there() -> None:
    table = StateTable("s", "value")
    table.remove(None, "a")
    assert not table.changed
    table.namespace(None)["a"] = 1
    table.forget_changes()
    table.remove(None, "a")
    assert table.changed_keys() == {(None, "a")}
    assert table.namespace(None) == {}


def test_removing_all_keys_of_a_namespace_marks_them_and_leaves_others() -> None:
    table = StateTable("s", "value")
    for namespace in ("w1", "w2"):
        table.namespace(namespace).update(a=1, b=2)
    table.forget_changes()
    table.remove_all("w1", ["a", "b"])
    table.remove_all("w2", ["b", "c"])
    table.remove_all("never there", ["a"])
    assert table.changed_keys() == {("w1", "a"), ("w1", "b"), ("w2", "b")}
    assert dict(table.items()) == {"w2": {"a": 1}}


def test_a_namespace_that_comes_and_goes_in_an_epoch_is_no_change() -> None:
    table = StateTable("s", "value")
    for _ in range(2):
        table.namespace("w")["a"] = 1
        table.mark("w", "a")
        table.remove_all("w", ["a"])
        assert not table.changed
    table.namespace("w")["a"] = 1
    table.mark("w", "a")
    table.forget_changes()
    table.remove_all("w", ["a"])
    table.namespace("w")["a"] = 2
    table.remove_all("w", ["a"])
    assert table.changed_keys() == {("w", "a")}


def test_prune_forgets_empty_namespaces_only() -> None:
    table = StateTable("s", "value")
    held = table.namespace(None)
    table.namespace("empty")
    table.namespace("full")["a"] = 1
    table.prune()
    assert table.namespace(None) is held
    assert dict(table.items()) == {"full": {"a": 1}}
