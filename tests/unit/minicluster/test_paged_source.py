"""A service that never answers the same twice is read exactly once, whatever fails."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flinkish.checkpoint.plain_tables import positions_in
from flinkish.common import Row
from flinkish.common.typeinfo import TypeInformation, Types
from flinkish.connectors import paged_source
from flinkish.connectors.paged_source import Page, PagedSource
from flinkish.errors import FinalOperationError, ProgramError, UserCodeError
from flinkish.minicluster import MiniCluster, StateStore
from flinkish.runtime.phases import ManualClock
from flinkish.runtime.sources.progress import decode_position
from flinkish.testing import TestingSink
from tests.support.documented import documented
from tests.support.http_orders import OrderServer, order_server
from tests.support.profiles import examples

from .programs import environment, job_of


@pytest.fixture
def server() -> Iterator[OrderServer]:
    with order_server(95) as running:
        yield running


@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_documented_api_is_read_exactly_once_although_tasks_and_drivers_fail(
    parallelism: int, server: OrderServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = documented("documented_api", 2, tmp_path, monkeypatch).Orders(server.url)
    source.poll_interval_ms = 0
    env, sink, store, clock = environment(parallelism), TestingSink(), StateStore(), ManualClock()
    tried: set[int] = set()

    def fails_the_first_time(order: Row) -> Row:
        if order.id % 7 == 0 and order.id not in tried:
            tried.add(order.id)
            raise RuntimeError("a bad day")
        return order

    env.add_source(source).map(fails_the_first_time).sink_to(sink)
    job = job_of(env, share_functions=True)
    failures = epochs = 0
    while len(sink.values) < server.count:
        assert failures + epochs < 100
        # each time another driver
        cluster = MiniCluster(job, clock, store, 20)
        try:
            cluster.run_epoch()
            epochs += 1
        except UserCodeError:
            failures += 1
        cluster.dispose()
    assert failures > 3 and epochs > 4
    assert sorted(order.id for order in sink.values) == list(range(1, 96))
    # what was planned was never asked for again
    assert [order.amount for order in sorted(sink.values, key=lambda order: order.id)] == [
        server.amounts[number][0] for number in range(1, 96)
    ]
    assert all(len(amounts) == 1 for amounts in server.amounts.values())


class Pages(PagedSource):
    """Pages of given values."""

    def __init__(self, *pages: list[Any], bounded: bool = True) -> None:
        self._pages = pages
        self._bounded = bounded

    @property
    def bounded(self) -> bool:
        return self._bounded

    @property
    def produced_type(self) -> TypeInformation:
        return Types.PICKLED_BYTE_ARRAY()

    def fetch(self, cursor: Any) -> Page:
        number = cursor or 0
        last = number + 1 >= len(self._pages)
        return Page(self._pages[number] if self._pages else [], None if last else number + 1)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.lists(st.integers(), max_size=6), max_size=30),
    st.integers(1, 9),
    st.integers(1, 3),
    st.sampled_from([1, 2, 16]),
)
def test_all_values_of_all_pages_come_in_order_within_their_page(
    pages: list[list[int]], per_epoch: int, parallelism: int, ahead: int
) -> None:
    source, env, sink = Pages(*pages), environment(parallelism), TestingSink()
    source.max_pages_ahead = ahead
    env.add_source(source).sink_to(sink)
    job, store = job_of(env), StateStore()
    while not store.finished:
        cluster = MiniCluster(job, ManualClock(), store, per_epoch)
        cluster.run_epoch()
        cluster.dispose()
    everything = [value for page in pages for value in page]
    if parallelism == 1:
        assert sink.values == everything
    assert sorted(sink.values) == sorted(everything)


def test_pages_are_deleted_long_after_they_were_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paged_source, "KEPT_EPOCHS", 5)
    monkeypatch.setattr(paged_source, "DELETED_AT_ONCE", 4)
    source, env, sink, store = Pages(*([n] for n in range(60))), environment(1), TestingSink(), StateStore()
    env.add_source(source).sink_to(sink)
    cluster, most = MiniCluster(job_of(env), ManualClock(), store, 1), 0
    while not store.finished:
        if store.next_epoch == 40:
            cluster = MiniCluster(job_of(env), ManualClock(), store, 1)
        cluster.run_epoch()
        (folder,) = (entry.path for entry in os.scandir(store.source_directories()))
        most = max(most, len(os.listdir(folder)))
    assert sink.values == list(range(60))
    assert most < 30


def test_a_savepoint_goes_on_behind_the_last_page_and_in_the_middle_of_one() -> None:
    source, env, sink, store = Pages([1, 2, 3], [4, 5, 6], [7, 8]), environment(1), TestingSink(), StateStore()
    source.max_pages_ahead = 1
    env.add_source(source).sink_to(sink)
    cluster = MiniCluster(job_of(env), ManualClock(), store, 2)
    cluster.run(3)
    assert sink.values == [1, 2, 3, 4, 5]
    (uid,) = store.offset["sources"]
    text = positions_in(cluster.job, store)[uid]

    restored = StateStore()
    restored.positions = {uid: decode_position(text, uid, restored.segments)}
    sink.commits.clear()
    MiniCluster(job_of(env), ManualClock(), restored, 2).run()
    assert sink.values == [6, 7, 8]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda path: path.unlink(), "is not there any more"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"2", b"3")), "is damaged"),
        (lambda path: path.write_bytes(b""), "is damaged"),
    ],
    ids=["deleted", "another record", "empty"],
)
def test_a_page_that_is_not_as_it_was_written_ends_the_job_with_its_name(
    change: Callable[[Path], object], what: str
) -> None:
    env, store = environment(1), StateStore()
    env.add_source(Pages([1], [2])).sink_to(TestingSink())
    cluster = MiniCluster(job_of(env), ManualClock(), store, 1)
    cluster.run(1)
    (folder,) = (entry.path for entry in os.scandir(store.source_directories()))
    for path in Path(folder).iterdir():
        change(path)
    with pytest.raises(FinalOperationError, match=rf"a page that was read ahead {what}.*\.json"):
        cluster.run()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([1, 2], r"gave \[1, 2\] instead of a page"),
        (Page([(1, 2)], None), "cannot be kept as JSON"),
        (Page([b"x"], None), "cannot be kept as JSON"),
        (Page([{1: 2}], None), "cannot be kept as JSON"),
        (Page("text", None), "cannot be kept as JSON"),
    ],
)
def test_what_is_no_page_is_refused(answer: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pages, "fetch", lambda self, cursor: answer)
    env = environment(1)
    env.add_source(Pages()).sink_to(TestingSink())
    with pytest.raises(ProgramError, match=message):
        MiniCluster(job_of(env), ManualClock()).run()


def test_what_a_service_raises_names_the_source_and_may_go_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(self: Pages, cursor: Any) -> Page:
        raise TimeoutError("no answer")

    env, sink, store = environment(1), TestingSink(), StateStore()
    env.add_source(Pages([1]), "orders").uid("orders").sink_to(sink)
    with monkeypatch.context() as patched:
        patched.setattr(Pages, "fetch", unavailable)
        with pytest.raises(UserCodeError, match="source uid orders") as raised:
            MiniCluster(job_of(env), ManualClock(), store).run()
    assert raised.value.retryable and "def unavailable" not in str(raised.value) and "no answer" in str(raised.value)
    MiniCluster(job_of(env), ManualClock(), store).run()
    assert sink.values == [1]


class Readings(PagedSource):
    bounded = True
    produced_type = Types.DOUBLE()

    def fetch(self, cursor: Any) -> Page:
        return Page([float("nan"), 1.0], None)


def test_a_page_may_hold_nan() -> None:
    sink, env = TestingSink(), environment(1)
    env.add_source(Readings()).sink_to(sink)
    MiniCluster(job_of(env), ManualClock()).run()
    assert repr(sink.values) == "[nan, 1.0]"
