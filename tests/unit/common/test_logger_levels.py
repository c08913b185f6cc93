"""Levels of loggers from a configuration, in log4j's manner."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import flinkish
from flinkish.common import Configuration
from flinkish.common.logger_levels import TRACE, configure_loggers, levels_of
from flinkish.common.options import loggers
from flinkish.errors import ConfigurationError

ROOT = Path(flinkish.__file__).parent


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    configure_loggers({})
    yield
    configure_loggers({})


def without_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a worker. To be called by a test itself: pytest adds handlers of its own after the fixtures."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])


def test_all_levels_of_log4j_are_levels_of_python() -> None:
    found = {level: levels_of({"logger.TaskManager": level})["flinkish.TaskManager"] for level in loggers.LEVELS}
    assert list(found.values()) == sorted(set(found.values()))
    assert (found["DEBUG"], found["WARN"], found["FATAL"]) == (logging.DEBUG, logging.WARNING, logging.CRITICAL)
    assert 0 < found["ALL"] < TRACE == found["TRACE"] and found["OFF"] > logging.CRITICAL


def test_a_name_of_a_class_is_a_logger_of_flinkish_and_any_other_one_of_the_program() -> None:
    levels = levels_of({"logger.TaskManager": "all", "logger.my_shop.cleaning": "Error"})
    assert levels == {"flinkish.TaskManager": 1, "my_shop.cleaning": logging.ERROR}


def test_a_talkative_root_does_not_report_each_call_to_the_jvm() -> None:
    assert levels_of({"rootLogger": "DEBUG"}) == {"": logging.DEBUG, "py4j": logging.WARNING}
    assert levels_of({"rootLogger": "DEBUG", "logger.py4j": "DEBUG"})["py4j"] == logging.DEBUG
    assert levels_of({"rootLogger": "ERROR"}) == {"": logging.ERROR}


def test_a_logger_that_is_on_says_all_and_one_that_is_off_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_handlers(monkeypatch)
    configure_loggers({"logger.TaskManager": "ALL", "logger.Task": "OFF", "logger.JobMaster": "INFO"})
    logging.getLogger("flinkish.TaskManager").log(TRACE, "the smallest thing")
    logging.getLogger("flinkish.Task").critical("the worst thing")
    logging.getLogger("flinkish.JobMaster").info("a thing")
    logging.getLogger("flinkish.JobMaster").debug("a small thing")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == [
        "TRACE flinkish.TaskManager: the smallest thing",
        "INFO flinkish.JobMaster: a thing",
    ]


def test_the_next_configuration_takes_back_what_it_does_not_name(monkeypatch: pytest.MonkeyPatch) -> None:
    without_handlers(monkeypatch)
    own = logging.getLogger("my_shop")
    own.setLevel(logging.ERROR)
    configure_loggers({"logger.my_shop": "DEBUG", "logger.TaskManager": "ALL"})
    configure_loggers({"logger.my_shop": "TRACE"})
    assert own.level == TRACE
    assert logging.getLogger("flinkish.TaskManager").level == logging.NOTSET
    configure_loggers({"parallelism.default": "2"})
    assert own.level == logging.ERROR and not logging.getLogger().handlers


def test_handlers_of_the_program_are_the_only_ones() -> None:
    before = list(logging.getLogger().handlers)
    assert before  # pytest's
    configure_loggers({"rootLogger": "INFO"})
    assert logging.getLogger().handlers == before


def test_keys_of_loggers_are_keys_of_the_configuration_and_levels_that_do_not_exist_are_refused() -> None:
    Configuration.from_dict({"rootLogger": "info", "logger.TaskManager": "ALL", "logger.my_shop": "off"}).validate()
    for key, level, words in (
        ("logger.my_shop", "LOUD", "expected one of ALL, TRACE"),
        ("rootLogger", "INFO, console", "expected one of ALL, TRACE"),
        ("logger.TaskManger", "INFO", r"unknown configuration key.*did you mean 'logger\.TaskManager'"),
        ("logger.taskmanager.level", "INFO", "unknown configuration key"),
        ("logger.", "INFO", "unknown configuration key"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            Configuration.from_dict({key: level}).validate()
    with pytest.raises(ConfigurationError, match=r"logger\.TaskManager"):
        configure_loggers({"logger.Task": "ALL", "logger.TaskManager": "LOUD"})
    assert logging.getLogger("flinkish.Task").level == logging.NOTSET, "nothing is changed"


def test_each_logger_of_flinkish_can_be_named() -> None:
    calls = (call for path in ROOT.rglob("*.py") for call in re.findall(r"getLogger\((.*?)\)", path.read_text()))
    # the others are those of libraries, the one above all of flinkish's, and those of the module that sets levels
    libraries = ('"py4j"', '"py4j.clientserver"', '"SQLQueryContextLogger"', '"flinkish"')
    named = {call for call in calls if call not in ("", "name", "OF_PROGRAM", *libraries)}
    assert named
    assert named <= {f'"flinkish.{name}"' for name in loggers.CLASSES}
