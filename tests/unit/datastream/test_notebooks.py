"""What a notebook shows of a stream, an environment, a job and its result."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser

import pytest

from flinkish.common import JobClient, JobExecutionResult, Types
from flinkish.common.html_text import facts, folded, table
from flinkish.datastream import DataStream, StreamExecutionEnvironment
from tests.support.programs import new_environment

HOSTILE = "</pre><script>alert(1)</script>\"'&<img src=x onerror=alert(1)>"
#: The elements of which all that is shown consists.
ELEMENTS = set("p table thead tbody tr th td details summary pre a svg style g title rect path text".split())


class Markup(HTMLParser):
    """The elements of an HTML text, and the texts between them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes.update(name for name, _ in attrs)
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


@pytest.fixture
def env() -> Iterator[StreamExecutionEnvironment]:
    env = new_environment(2)
    yield env
    env.close()


def stream(env: StreamExecutionEnvironment, name: str) -> DataStream:
    rows = env.from_collection([("a", 1)], Types.ROW_NAMED([name, "n"], [Types.STRING(), Types.INT()])).name(name)
    return rows.key_by(lambda row: row[1]).reduce(lambda one, _: one).name(name).uid(name)


def finished(env: StreamExecutionEnvironment, name: str) -> tuple[JobClient, JobExecutionResult]:
    stream(env, name).print()
    client = env.execute_async(name)
    return client, client.get_job_execution_result().result()


def test_no_name_is_markup_wherever_it_is_shown(env: StreamExecutionEnvironment) -> None:
    shown = [stream(env, HOSTILE)._repr_html_()]
    stream(env, HOSTILE + "2").print()
    shown.append(env._repr_html_())
    env.close()
    client, _ = finished(env, HOSTILE)
    result = JobExecutionResult(client.get_job_id(), 1, {HOSTILE: HOSTILE})
    shown += [client._repr_html_(), result._repr_html_()]
    for html in shown:
        markup = Markup(html)
        assert set(markup.elements) <= ELEMENTS and not markup.open
        assert "onerror" not in markup.attributes and "script>alert(1)" in markup.text


def test_a_stream_shows_its_operator_the_fields_of_its_records_and_the_graph_up_to_it(
    env: StreamExecutionEnvironment,
) -> None:
    shown = stream(env, "sums")
    shown.map(str, Types.STRING()).name("later").print()
    texts = Markup(shown._repr_html_()).text.split("\n")
    assert texts[0] == "<DataStream of RowTypeInfo(sums: String, n: Integer), from sums>"
    for name, value in (("operator", "sums"), ("uid", "sums"), ("sums", "String"), ("n", "Integer")):
        assert (name, value) in list(zip(texts, texts[1:]))
    assert "HASH" in texts and "later" not in texts


def test_a_stream_that_no_plan_can_be_made_of_says_why(env: StreamExecutionEnvironment) -> None:
    first = env.from_collection([1], Types.INT()).map(lambda n: n, Types.INT()).uid("twice")
    second = first.map(lambda n: n, Types.INT()).uid("twice")
    markup = Markup(second._repr_html_())
    assert "the uid 'twice' is used twice" in markup.text and "svg" not in markup.elements


def test_a_job_shows_its_status_and_what_each_vertex_has_done(env: StreamExecutionEnvironment) -> None:
    client, result = finished(env, "shop")
    texts = Markup(client._repr_html_()).text.split("\n")
    for name, value in (("job", str(client.get_job_id())), ("status", "FINISHED"), ("records", "1 in, 1 out")):
        assert (name, value) in list(zip(texts, texts[1:]))
    assert "2 × finished" in texts and "story" in texts
    assert f"{result.get_net_runtime():,} ms" in result._repr_html_()


@pytest.mark.parametrize(
    ("html", "text"),
    [
        (facts({"a": None, "b": "", "c": 0}), ["c", "0"]),
        (facts({}), []),
        (table(("x",), []), []),
        (table(("x", "y"), [("jdbc://me:secret@db", 1)]), ["x", "y", "jdbc://me:******@db", "1"]),
        (folded("plan", ""), []),
        (folded("plan", "<a>\nb"), ["plan", "<a>", "b"]),
    ],
)
def test_tables_leave_out_what_is_not_there(html: str, text: list[str]) -> None:
    assert Markup(html).text.split("\n")[:-1] == text
