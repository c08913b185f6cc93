"""Our own page: its files, who gets them, and the description of a job that it shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import fields, replace
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import pytest

from flinkish.jobmanager.job.description import (
    CheckpointDescription,
    ExceptionDescription,
    ExecutionDescription,
    JobDescription,
    RatesDescription,
    SubtaskDescription,
    VertexDescription,
)
from flinkish.rest.api import Api
from flinkish.rest.own_page import OwnPage
from flinkish.rest.routes import ROUTES
from flinkish.rest.views.description import MOST_SUBTASKS
from flinkish.runtime.task.progress import SlowCall
from tests.support.described_jobs import wide_job
from tests.support.rest_jobs import HOST, JOB, TOKEN, UNKNOWN, FakeJobs, api_of, ask, job

PAGE = resources.files("flinkish.rest").joinpath("page")


class Nothing:
    """There is no other file."""

    def answer(self, path: str, headers: Any) -> None:
        return None


def api_with(*jobs: JobDescription) -> Api:
    return api_of(FakeJobs(*jobs), ROUTES, files=OwnPage(Nothing()))


class Linked(HTMLParser):
    """The files that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        found = given.get("src") if tag == "script" else given.get("href") if tag == "link" else None
        if found and not found.startswith("data:"):
            self.files.append(found)


def test_the_page_and_all_that_it_loads_are_files_of_the_package() -> None:
    api = api_with()
    page = ask(api, "GET", "/flinkish.html")
    assert (page.status, page.content_type) == (200, "text/html; charset=UTF-8")
    assert "default-src 'self'" in dict(page.headers)["content-security-policy"]
    linked = Linked()
    linked.feed(page.body.decode())
    assert linked.files == ["flinkish.css", "flinkish.js"], "relative, for proxies that put something before the path"
    for name in linked.files:
        assert ask(api, "GET", f"/{name}").body == PAGE.joinpath(name).read_bytes()
    assert sorted(one.name for one in PAGE.iterdir()) == ["flinkish.css", "flinkish.html", "flinkish.js"]


def test_who_brings_the_token_along_gets_a_cookie_and_the_page() -> None:
    api = api_with()
    nobody = {"host": HOST}
    assert ask(api, "GET", "/flinkish.html", headers=nobody).status == 401
    let_in = ask(api, "GET", "/flinkish.html", query=f"token={TOKEN}", headers=nobody)
    headers = dict(let_in.headers)
    assert (let_in.status, headers["location"]) == (303, "./flinkish.html")
    cookie = headers["set-cookie"].partition(";")[0]
    assert ask(api, "GET", "/flinkish.html", headers={**nobody, "cookie": cookie}).status == 200
    assert ask(api, "GET", "/flinkish.html", query="token=wrong", headers=nobody).status == 401


def test_no_text_of_a_job_becomes_html() -> None:
    script = PAGE.joinpath("flinkish.js").read_text()
    found = re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", script)
    assert found == []


@pytest.mark.parametrize(
    ("pattern", "described"),
    [
        (r"\bjob\.(\w+)", JobDescription),
        (r"\bvertex\.(\w+)", VertexDescription),
        (r"\bcurrent\.(\w+)", ExecutionDescription),
        (r"\bcall\.(\w+)", SlowCall),
    ],
)
def test_the_page_reads_fields_that_a_description_has(pattern: str, described: type) -> None:
    script = PAGE.joinpath("flinkish.js").read_text()
    # those of the list of jobs are Flink's
    of_lists = {"jid", "state"} if described is JobDescription else set()
    read = set(re.findall(pattern, script)) - of_lists
    assert len(read) > 1
    assert read - {one.name for one in fields(described)} == set()


def described(api: Api) -> dict[str, Any]:
    answer = ask(api, "GET", f"/jobs/{JOB}/description")
    assert answer.status == 200
    found: dict[str, Any] = json.loads(answer.body)["job"]
    return found


def vertex(*subtasks: ExecutionDescription) -> VertexDescription:
    found = tuple(SubtaskDescription(number, f"count ({number})", one) for number, one in enumerate(subtasks))
    return VertexDescription(0, "count", "count", 0, len(found), 128, True, (), (), "RUNNING", found)


def test_a_job_is_told_with_its_checkpoints_and_exceptions() -> None:
    checkpoint = CheckpointDescription(3, 17, "COMPLETED", 1_000, path="/data/chk-3")
    failure = ExceptionDescription(2_000, 1, "UserCodeError", "the author of the job", False, "it failed")
    shown = replace(
        job(),
        exceptions=(failure,),
        checkpoints=replace(job().checkpoints, history=(checkpoint,)),
        vertices=(vertex(ExecutionDescription(0, "RUNNING", {}, watermark_ms=5)),),
    )
    found = described(api_with(shown))
    assert found["status"] == "RUNNING"
    assert found["checkpoints"]["history"][0]["path"] == "/data/chk-3"
    assert found["exceptions"][0]["error_class"] == "UserCodeError"
    assert found["vertices"][0]["subtasks"][0]["current"]["watermark_ms"] == 5
    assert ask(api_with(), "GET", f"/jobs/{UNKNOWN}/description").status == 404


def test_the_whole_description_is_given_to_who_asks_for_all_subtasks() -> None:
    described = replace(wide_job(400), id=JOB, configuration={"a": "b"}, plan={"nodes": []})
    api = api_of(FakeJobs(described), ROUTES)

    def asked(query: str) -> Any:
        answer = ask(api, "GET", f"/jobs/{JOB}/description", query=query)
        return json.loads(answer.body)["job"] if answer.status == 200 else answer.status

    counts = {query: len(asked(query)["vertices"][0]["subtasks"]) for query in ("", "subtasks=none", "subtasks=all")}
    assert (counts["subtasks=none"], counts["subtasks=all"]) == (0, 100)
    assert 0 < counts[""] < 100
    whole = asked("subtasks=all")
    assert (whole["configuration"], whole["plan"]) == ({"a": "b"}, {"nodes": []})
    assert whole["vertices"][0]["subtasks"][0]["earlier"] == []
    assert len(asked("subtasks=all&attempts=true")["vertices"][0]["subtasks"][0]["earlier"]) == len(
        described.vertices[0].subtasks[0].earlier
    )
    assert asked("subtasks=some") == 400


def test_of_many_subtasks_those_are_told_that_stand_out() -> None:
    running = ExecutionDescription(0, "RUNNING", {}, watermark_ms=100)
    many = [running] * 4_000
    many[1_000] = replace(running, watermark_ms=50)
    many[2_000] = replace(running, rates=RatesDescription(busy_ms=900))
    many[2_500] = replace(running, rates=RatesDescription(backpressured_ms=900))
    many[3_000] = replace(running, state_bytes=1 << 30)
    found = described(api_with(replace(job(), vertices=(vertex(*many),))))
    told = [one["subtask"] for one in found["vertices"][0]["subtasks"]]
    assert {1_000, 2_000, 2_500, 3_000} <= set(told)
    assert len(told) <= 5 * MOST_SUBTASKS and told == sorted(told)
    assert found["vertices"][0]["parallelism"] == 4_000


# ---------------------------------------------------------------------- what the page makes of a description

FUNCTIONS = ("holding", "shareOf", "percent", "sinceBegin", "doneBy")


def made_by_page(job: dict[str, Any], expression: str) -> Any:
    """What an expression over functions of the page gives for a job."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node on this machine")
    script = PAGE.joinpath("flinkish.js").read_text()
    parts = re.findall(r"^const (?:NO_WATERMARK|ENDED) = .*;$", script, re.M)
    for name in FUNCTIONS:
        parts += re.findall(rf"^(?:function {name}\(.*?^\}}|const {name} = .*?;)$", script, re.M | re.S)
    assert len(parts) == 2 + len(FUNCTIONS)
    program = "\n".join([*parts, f"const job = {json.dumps(job)};", f"console.log(JSON.stringify({expression}));"])
    done = subprocess.run([node, "-e", program], capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


def of_level(number: int, inputs: list[int], *watermarks: int | None, **more: Any) -> dict[str, Any]:
    subtasks = [
        {"name": f"v{number} ({n + 1})", "current": {"state": "RUNNING", "watermark_ms": ms, "splits": [f"s{n}"]}}
        for n, ms in enumerate(watermarks)
    ]
    lowest = None if None in watermarks else min(ms for ms in watermarks if ms is not None)
    return {
        "id": number,
        "uid": f"uid-{number}",
        "name": f"v{number}",
        "inputs": inputs,
        "state": "RUNNING",
        "watermark_ms": lowest,
        "subtasks": subtasks,
        **more,
    }


@pytest.mark.parametrize(
    ("vertices", "held_by"),
    [
        ([of_level(0, [], 5), of_level(1, [0], 5, 5)], ["", "v0"]),
        ([of_level(0, [], 9, 5), of_level(1, [0], 5, 5)], ["v0 (2), which reads s1", "v0 (2), which reads s1"]),
        # of two sources, the one that has none yet; and through a vertex between them
        (
            [of_level(0, [], 9), of_level(1, [], 7, None), of_level(2, [0, 1], None), of_level(3, [2], None)],
            ["", *["v1 (2), which reads s1"] * 3],
        ),
        # a vertex that makes its watermarks itself is not held back by its input
        ([of_level(0, [], None), of_level(1, [0], 8), of_level(2, [1], 8)], ["", "", "v1"]),
        ([of_level(0, [], 5, state="FINISHED"), of_level(1, [0], 5)], ["", ""]),
    ],
)
def test_a_watermark_is_held_back_by_a_vertex_before_it_and_by_no_vertex_itself(
    vertices: list[dict[str, Any]], held_by: list[str]
) -> None:
    found = made_by_page({"vertices": vertices}, "job.vertices.map((vertex) => holding(job, vertex))")
    assert found == held_by


def test_the_head_and_the_graph_count_since_the_same_moment_and_what_is_not_known_is_no_share() -> None:
    attempt = of_level(0, [], 5, records_in=10)
    attempt["subtasks"][0]["current"]["rates"] = None
    totals = {"drivers": 1, "epochs": 7, "records_in": 300, "vertices": {"uid-0": attempt | {"records_in": 300}}}
    job = {"vertices": [attempt], "metrics": {"records_in": 20}, "totals": totals}
    expression = "[sinceBegin(job).records_in, doneBy(job, job.vertices[0]).records_in,"
    expression += " percent(shareOf(job.vertices[0], 'busy_ms'))]"
    assert made_by_page(job, expression) == [300, 300, "–"]
    assert made_by_page({**job, "totals": {"epochs": 0}}, expression) == [20, 10, "–"]
    # an earlier driver has been restarted, and no epoch has been committed yet
    again = {**job, "metrics": {"restarts": 0}, "totals": {"drivers": 2, "epochs": 0, "restarts": 3}}
    assert made_by_page(again, "sinceBegin(job).restarts") == 3
