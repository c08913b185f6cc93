"""The commands for a job that runs in another process: Flink's names and options, for a job that is named by its
directory, its id or its name. ``prepared`` is for a job that has ended because a sink refused what an epoch holds for
it.
"""

from __future__ import annotations

import argparse
import json
import posixpath
import sys
import time
from dataclasses import asdict
from typing import Any

from flinkish.cli import targets
from flinkish.cli.operations import Driver, Outcome, RestDriver, carry_out, checked_id, driver_of
from flinkish.cli.parsers import ACCEPTED, DONE, add_command, add_json, print_json
from flinkish.cli.targets import ENDED, Finder, Job, with_directory
from flinkish.errors import ConfigurationError, FinalOperationError, FlinkishError, OperationError
from flinkish.jobdir.layout import Owner
from flinkish.storage.paths import absolute

#: Seconds between two drawings of a live table, and between two looks at a log.
_INTERVAL_S = 1.0
#: How far above a savepoint its job directory is looked for: <job dir>/checkpoints/<job id>/chk-1.
_LEVELS = 3


def add_commands(commands: Any) -> None:
    """Add the parsers of these commands."""
    _add_looks(commands)
    _add_operations(commands)
    text = "show or skip what an epoch that could not be committed holds"
    prepared = add_command(
        commands,
        "prepared",
        text,
        _prepared,
        "flinkish prepared /data/jobs/clicks --sink files --skip 3,7-9 --into /data/skipped.json",
    )
    prepared.add_argument("job_dir", metavar="JOB_DIR", help="the job's directory (flinkish.job.dir)")
    prepared.add_argument("--sink", metavar="UID", help="show the records for this sink; default: count those of all")
    prepared.add_argument("--subtask", type=int, metavar="N", help="of this subtask of the sink only, from 0")
    prepared.add_argument("--skip", metavar="NUMBERS", help="take these records out of the epoch: 3,7-9 or all")
    prepared.add_argument("--into", metavar="FILE", help="append the skipped records to this file, as JSON")
    prepared.add_argument("--json", action="store_true", help="print JSON, a value in a line; it always does")


def _add_looks(commands: Any) -> None:
    listing = add_command(
        commands,
        "list",
        "list jobs: those of this user's drivers on this machine, and those of a folder",
        _list,
        "flinkish list -a",
        "flinkish list --watch --jobs /data/jobs",
    )
    listing.add_argument("-a", "--all", action="store_true", help="running, scheduled and ended jobs")
    listing.add_argument("-r", "--running", action="store_true", help="running jobs only")
    listing.add_argument("-s", "--scheduled", action="store_true", help="jobs only that are about to run")
    listing.add_argument("--watch", action="store_true", help="draw a table each second, until Ctrl-C")
    _add_common(listing)
    describe = _add_for_job(
        commands,
        "describe",
        "say how a job is: vertices, sources, checkpoints, failures; of one that has ended, how it has",
        _describe,
        "flinkish describe /data/jobs/clicks",
        "flinkish describe clicks --json",
    )
    describe.add_argument("--attempts", action="store_true", help="with the earlier attempts of each subtask, as JSON")
    logs = _add_for_job(
        commands, "logs", "show the last lines that flinkish has logged in a driver", _logs, "flinkish logs clicks -f"
    )
    logs.add_argument("-f", "--follow", action="store_true", help="and those to come, until Ctrl-C")


def _add_operations(commands: Any) -> None:
    savepoint = _add_for_job(
        commands,
        "savepoint",
        "write a savepoint of a running job; prints its path. Also: savepoint status, dispose, diff",
        _savepoint,
        "flinkish savepoint /data/jobs/clicks /data/savepoints",
        "flinkish savepoint status 5b0e8c2b4c1d4e6f8a9b0c1d2e3f4a5b",
        "flinkish savepoint dispose /data/savepoints/savepoint-1",
    )
    savepoint.add_argument("target", nargs="?", metavar="DIRECTORY", help="where to; default: as configured")
    savepoint.add_argument("-d", "--dispose", metavar="PATH", help="delete this savepoint instead")
    _add_detached(savepoint)
    status = add_command(
        commands,
        "savepoint status",
        "say how an operation stands, by its id; exit code 3: it goes on",
        _status,
        "flinkish savepoint status 5b0e8c2b4c1d4e6f8a9b0c1d2e3f4a5b clicks",
    )
    status.add_argument("operation", metavar="OPERATION", help="the id that --detached has printed")
    _add_job(status)
    dispose = add_command(
        commands,
        "savepoint dispose",
        "delete a savepoint: the files that its manifest names, and nothing else",
        _dispose,
        "flinkish savepoint dispose /data/savepoints/savepoint-1",
    )
    dispose.add_argument("dispose", metavar="PATH", help="the savepoint, or a checkpoint that has outlived its job")
    _add_common(dispose)
    checkpoint = _add_for_job(
        commands,
        "checkpoint",
        "take a checkpoint of a running job; prints its number",
        _checkpoint,
        "flinkish checkpoint clicks --full",
    )
    checkpoint.add_argument("-full", "--full", action="store_true", help="all state, not only what has changed")
    _add_detached(checkpoint)
    stop = _add_for_job(
        commands,
        "stop",
        "stop a job after a savepoint; prints its path",
        _stop,
        "flinkish stop clicks -p /data/savepoints",
    )
    stop.add_argument("-p", "--savepointPath", metavar="DIRECTORY", help="where to; default: as configured")
    stop.add_argument("-d", "--drain", action="store_true", help="send the highest watermark first: all windows fire")
    _add_detached(stop)
    cancel = _add_for_job(commands, "cancel", "cancel a job, without a savepoint", _cancel, "flinkish cancel clicks")
    cancel.add_argument(
        *("-s", "--withSavepoint"), nargs="?", const="", metavar="DIRECTORY", help="after a savepoint; prints its path"
    )


def _add_for_job(commands: Any, name: str, text: str, carry_out: Any, *examples: str) -> argparse.ArgumentParser:
    parser = add_command(commands, name, text, carry_out, *examples)
    _add_job(parser)
    return parser


def _add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "job", nargs="?", metavar="JOB", help="its directory, its id or the beginning of it, or its name"
    )
    _add_common(parser)


def _add_common(parser: argparse.ArgumentParser) -> None:
    targets.add_options(parser)
    parser.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS", help="for the driver's answer")
    add_json(parser)


def _add_detached(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-detached", "--detached", action="store_true", help="do not wait for the end: print the operation's id, exit 3"
    )


# ---------------------------------------------------------------------- operations


def _asked(arguments: argparse.Namespace, kind: str, **details: Any) -> int:
    """Ask the job's driver for an operation, and say what has come of it."""
    job = with_directory(Finder(arguments).find(arguments.job))
    detached = getattr(arguments, "detached", False)
    return _printed(arguments, kind, carry_out(driver_of(job), kind, arguments.timeout, detached, **details), job)


def _printed(arguments: argparse.Namespace, kind: str, outcome: Outcome, job: Job | None) -> int:
    told = {"location": outcome.location, "checkpoint": outcome.checkpoint}
    if arguments.json:
        status = "COMPLETED" if outcome.completed else "IN_PROGRESS"
        named = None if job is None else job.id
        given = {name: value for name, value in told.items() if value is not None}
        print_json({"operation": outcome.id, "kind": kind, "job": named, "status": status, **given})
    elif outcome.completed:
        for value in told.values():
            if value is not None:
                print(value)
    elif getattr(arguments, "detached", False):
        print(outcome.id)
    if outcome.completed:
        return DONE
    look = f"flinkish savepoint status {outcome.id}"
    if arguments.jobmanager is not None:
        look += f" -m {arguments.jobmanager}"
    elif job is not None and job.client is None:
        # it is found in the directory alone
        look += f" {job.directory}"
    print(f"flinkish: the operation {outcome.id} goes on; '{look}' says how it stands", file=sys.stderr)
    return ACCEPTED


def _savepoint(arguments: argparse.Namespace) -> int:
    if arguments.dispose is None:
        return _asked(arguments, "savepoint", directory=arguments.target)
    if arguments.job is not None:
        raise ConfigurationError("-d beside a job", expected="flinkish savepoint -d PATH")
    return _dispose(arguments)


def _stop(arguments: argparse.Namespace) -> int:
    return _asked(arguments, "stop", directory=arguments.savepointPath, drain=arguments.drain)


def _checkpoint(arguments: argparse.Namespace) -> int:
    return _asked(arguments, "checkpoint", full=arguments.full)


def _cancel(arguments: argparse.Namespace) -> int:
    if arguments.withSavepoint is None:
        return _asked(arguments, "cancel")
    return _asked(arguments, "savepoint", directory=arguments.withSavepoint or None, cancel_job=True)


def _status(arguments: argparse.Namespace) -> int:
    operation, finder = checked_id(arguments.operation), Finder(arguments)
    if arguments.job is not None:
        job = finder.find(arguments.job)
        return _printed(arguments, "status", driver_of(job).look(operation), job)
    for job in finder.all():
        if job.client is None:
            continue
        try:
            outcome = driver_of(job).look(operation)
        except FinalOperationError:
            continue
        return _printed(arguments, "status", outcome, job)
    raise OperationError(
        f"no driver knows the operation {operation}, or its result is not kept any more",
        hint="name the job: flinkish savepoint status OPERATION JOB; 'flinkish describe JOB' lists its last savepoints",
    )


def _dispose(arguments: argparse.Namespace) -> int:
    """Have the driver delete a savepoint in whose job directory it lies, or which is named; otherwise delete it
    here."""
    finder, path = Finder(arguments), arguments.dispose
    client = finder.client()
    driver = _owner(finder, path) if client is None else RestDriver(client)
    if driver is not None:
        outcome = carry_out(driver, "dispose", arguments.timeout, directory=path)
        if not outcome.completed:
            return _printed(arguments, "dispose", outcome, None)
    else:
        from flinkish.jobmanager.savepoint import dispose_savepoint

        dispose_savepoint(path, _begun_from(finder))
    if arguments.json:
        print_json({"kind": "dispose", "status": "COMPLETED", "path": path})
    else:
        print(f"Savepoint '{path}' disposed.")
    return DONE


def _owner(finder: Finder, path: str) -> Driver | None:
    """The driver that runs the job in whose directory a savepoint lies, if it answers by REST."""
    above = absolute(path)
    for _ in range(_LEVELS):
        above = posixpath.dirname(above)
        if Owner.read(absolute(above)) is not None and (job := finder.of_directory(above)).client is not None:
            return driver_of(job)
    return None


def _begun_from(finder: Finder) -> dict[str, str]:
    """The savepoint that a job at work has been started from -> the name of the job."""
    found: dict[str, str] = {}
    for job in finder.all():
        if job.client is not None and not job.has_ended:
            settings = {one["key"]: one["value"] for one in job.client.get(f"/jobs/{job.id}/jobmanager/config")}
            if savepoint := settings.get("execution.state-recovery.path"):
                found[absolute(savepoint)] = job.name
    return found


# ---------------------------------------------------------------------- looks


def _list(arguments: argparse.Namespace) -> int:
    from flinkish.cli.listed import kind_of, list_text, listed, live_table, wanted, watch

    finder = Finder(arguments)
    kinds = wanted(arguments.all, arguments.running, arguments.scheduled)

    def jobs() -> list[Any]:
        return [one for one in listed(finder) if kind_of(one.job) in kinds]

    if arguments.watch and arguments.json:
        watch(lambda: json.dumps([one.as_json() for one in jobs()]), _INTERVAL_S, in_place=False)
    elif arguments.watch:
        watch(lambda: live_table(jobs(), int(time.time() * 1000)), _INTERVAL_S)
    elif arguments.json:
        print_json([one.as_json() for one in jobs()])
    else:
        print(list_text([one.job for one in jobs()], kinds))
    for sentence in dict.fromkeys(finder.skipped):
        print(f"flinkish: {sentence}", file=sys.stderr)
    return DONE


def _describe(arguments: argparse.Namespace) -> int:
    from flinkish.cli.described import ended_text, job_text

    job = Finder(arguments).find(arguments.job)
    now_ms = int(time.time() * 1000)
    described, end = None, None
    if job.client is not None:
        attempts = {"attempts": "true"} if arguments.attempts else {}
        try:
            answer = job.client.get(f"/jobs/{job.id}/description", subtasks="all", **attempts)
        except FinalOperationError:
            if not job.has_ended:
                raise
            return _describe_archived(arguments, job, now_ms)
        described, now_ms = answer["job"], answer["now_ms"]
    directory = job.directory if described is None else described["directory"]
    if directory is not None and (described is None or described["status"] in ENDED):
        from flinkish.cli.ended import ended

        end = ended(directory)
    if described is None and end is None:
        from flinkish.jobmanager.requests import ask

        attempts_too = {"attempts": True} if arguments.attempts else {}
        described = ask(str(directory), "describe", arguments.timeout, **attempts_too)
    told = None if end is None else asdict(end)
    if arguments.json or arguments.attempts:
        print_json(told if described is None else described)
    elif described is None:
        assert told is not None
        print(ended_text(told, now_ms))
    else:
        print(job_text(described, now_ms, end=told))
    return DONE


def _describe_archived(arguments: argparse.Namespace, job: Job, now_ms: int) -> int:
    """Say how a job has ended whose driver is gone, as its archive has it, which a session process shows."""
    from flinkish.cli.described import ended_text

    assert job.client is not None
    latest = job.client.get(f"/jobs/{job.id}/checkpoints")["latest"]["savepoint"]
    failures = job.client.get(f"/jobs/{job.id}/exceptions")["exceptionHistory"]["entries"]
    told = {
        "id": job.id,
        "name": job.name,
        "status": job.status,
        "ended_ms": job.end_ms,
        "how": failures[0]["stacktrace"] if job.status == "FAILED" and failures else None,
        "savepoint": None if latest is None else latest["external_path"],
        **dict.fromkeys(("last_epoch", "directory", "again")),
        "driver": f"it is gone; its archive is shown at {job.client.url}",
    }
    if arguments.json:
        print_json(told)
    else:
        print(ended_text(told, now_ms))
    return DONE


def _logs(arguments: argparse.Namespace) -> int:
    job = Finder(arguments).find(arguments.job)
    if job.client is None:
        raise _no_log(job)
    text = job.client.text("/jobmanager/log")
    if arguments.json:
        print_json({"job": job.id, "rest": job.client.url, "log": text})
        return DONE
    sys.stdout.write(text)
    try:
        while arguments.follow:
            sys.stdout.flush()
            time.sleep(_INTERVAL_S)
            newer = job.client.text("/jobmanager/log")
            sys.stdout.write(_behind(text, newer))
            text = newer
    except KeyboardInterrupt:
        pass
    except OperationError:
        print("flinkish: the driver has ended", file=sys.stderr)
    return DONE


def _behind(text: str, newer: str) -> str:
    """What a log has more than before; its oldest lines may be gone."""
    last = text[text.rstrip("\n").rfind("\n") + 1 :]
    place = newer.rfind(last) if last else -1
    return newer if place < 0 else newer[place + len(last) :]


def _no_log(job: Job) -> FlinkishError:
    from flinkish.launch.home import Home

    owner = Owner.read(absolute(job.directory)) if job.directory is not None else None
    place = "its driver" if owner is None else f"the process {owner.pid} on {owner.host}"
    return OperationError(
        "the log of the driver cannot be read from here: no driver of the job answers by REST",
        where=f"job '{job.name}', directory {job.directory}",
        hint=f"it is on the standard error of {place}, and Spark's in {Home({}).spark_log} there",
    )


# ---------------------------------------------------------------------- prepared epochs


def _prepared(arguments: argparse.Namespace) -> None:
    from flinkish.jobdir.waiting_epoch import open_waiting, skip_output

    if arguments.skip is not None:
        if arguments.sink is None or arguments.into is None:
            raise ConfigurationError("--skip alone", expected="--sink UID --skip NUMBERS --into FILE")
        numbers = None if arguments.skip == "all" else _numbers(arguments.skip)
        count = skip_output(arguments.job_dir, arguments.sink, arguments.subtask, numbers, arguments.into)
        print(json.dumps({"skipped": count, "into": arguments.into}))
        return
    waiting = open_waiting(arguments.job_dir)
    if arguments.sink is not None:
        for record in waiting.records(arguments.sink, arguments.subtask):
            print(record.as_json(waiting.epoch))
        return
    for (sink, subtask), count in waiting.counts().items():
        print(json.dumps({"epoch": waiting.epoch, "sink": sink, "subtask": subtask, "records": count}))


def _numbers(text: str) -> set[int]:
    try:
        ranges = [[int(end) for end in part.split("-")] for part in text.split(",")]
        return {number for ends in ranges for number in range(ends[0], ends[-1] + 1)}
    except ValueError:
        raise ConfigurationError(f"--skip {text}", expected="numbers and ranges such as 3,7-9, or all") from None
