"""Passwords, tokens and keys are in no text that leaves the process."""

from __future__ import annotations

import logging
import pickle

import pytest

from flinkish.common import Configuration
from flinkish.common.configuration import redacted
from flinkish.error_display import text_of
from flinkish.errors import ConfigurationError, FlinkishError, UserCodeError, message_of, redact
from flinkish.runtime.task_log import TaskLog, TaskLogHandler, enter

#: Texts with secrets that contain "hidden".
WITH_SECRETS = [
    "postgresql://me:hidden@db/shop",
    "postgresql://me:hid/den?hidden@hidden@db:5432/shop",
    "cannot read 'postgresql://me:hidden@db/a' and 'postgresql://me:hidden@db/b'",
    "jdbc:postgresql://db/x?user=a&PASSWORD=a/hidden?b@c&ssl=true",
    "jdbc:postgresql://db/x?sslpassword=hidden",
    "jdbc:mysql://a:hidden@db/x?useSSL=true&password=hidden",
    "pwd=hidden",
    "Pwd = 'hidden and more'",
    "client_secret=hidden]; expected another one",
    "user:me,password:hidden,x:y",
    "api-token:hidden",
    "password: hidden",
    '{"secret": "hidden words", "n": 1}',
    "{'fs.s3a.secret.key': 'hidden'}",
    'sasl.jaas.config=org.Plain required username="hidden" password="hidden";',
    'sasl.jaas.config: org.Plain required username="me" password="hidden words";',
    "{'sasl.jaas.config': 'org.Plain required username=\"me\" password=\"hidden\";'}",
]


@pytest.mark.parametrize("text", WITH_SECRETS)
def test_a_secret_is_masked_and_masking_twice_changes_nothing_more(text: str) -> None:
    masked = redact(text)
    assert "hidden" not in masked and "******" in masked
    assert redact(masked) == masked


@pytest.mark.parametrize(
    "text",
    ["http://host:8080/path", "invalid token: x", "the password is wrong", "jdbc:sqlite:/x", "a@b: c = d", ""],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert redact(text) == text


def test_errors_have_no_secrets_in_any_part() -> None:
    url = "postgresql://me:hidden@db/x"
    errors: list[FlinkishError] = [
        ConfigurationError(f"what {url}", where=url, expected=url, hint=url),
        UserCodeError("what", user_traceback=f"OperationalError: {url}"),
    ]
    for error in [*errors, *(pickle.loads(pickle.dumps(error)) for error in errors)]:
        assert "hidden" not in f"{error} {error!r} {text_of(error, None)}"
    assert "hidden" not in message_of(OSError(url))


def test_settings_have_no_secrets_in_keys_and_values() -> None:
    settings = {
        "a.password": "hidden",
        "pipeline.global-job-parameters": "user:me,db-token:hidden,url:postgresql://me:hidden@db/x",
        "pipeline.name": "shown",
    }
    assert "hidden" not in str(redacted(settings)) + str(Configuration.from_dict(settings))
    assert redacted(settings)["pipeline.name"] == "shown"


def test_lines_that_tasks_log_have_no_secrets() -> None:
    log = TaskLog()
    enter(log)
    try:
        record = logging.LogRecord("shop", logging.ERROR, "", 0, "to %s", ("postgresql://me:hidden@db/x",), None)
        TaskLogHandler(also_here=False).emit(record)
    finally:
        enter(None)
    ((_, _, _, message),) = log.take()
    assert message == "to postgresql://me:******@db/x"
