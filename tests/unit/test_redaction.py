"""Passwords, tokens and keys are in no text that leaves the process."""

from __future__ import annotations

import json
import logging
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flinkish.common import Configuration
from flinkish.common.config_file import parse_yaml
from flinkish.common.config_options import ConfigOption
from flinkish.common.configuration import redacted
from flinkish.common.options import groups
from flinkish.error_display import text_of
from flinkish.errors import ConfigurationError, FlinkishError, UserCodeError, message_of, redact
from flinkish.runtime.job.log import TaskLog, TaskLogHandler, enter

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


#: Texts without secrets: what looks like a key, a URL with a user, or an assignment.
WITHOUT_SECRETS = [
    "",
    "http://host:8080/path",
    "https://host/@user and a@b",
    "abfss://data@account.dfs.core.windows.net/in",
    "postgresql://me@db:5432/shop",
    "ssh://git@host/repository",
    "jdbc:sqlite:/x",
    "a@b: c = d",
    "the key: 5 of a record, primary_key=7, {'key': 'u42', 'keys': ['a', 'b']}",
    "ssl.keystore.location=/k, ssl.truststore.certificates=x, ssl.certificate.pem=x",
    "the password is wrong; no password was given",
    "invalid token: x",
    "Unexpected token: }; unrecognized token 'abc': was expecting a number",
    "token count: 5, a count of 5 tokens (token, secret)",
    "jwt.exceptions.InvalidTokenError: Signature has expired",
    "Sink schema: [cookie: STRING, token: INT NOT NULL, credential: CHAR(7), access_key: ROW<a INT>]; expected",
    "TOPIC_AUTHORIZATION_FAILED: topic orders",
    "InvalidAccessKeyId: The AWS Access Key Id does not exist",
    "tokenize.TokenError: ('EOF in multi-line statement', (2, 0))",
    "  at a.TokenCache.load(TokenCache.java:120)",
    'File "/app/secrets.py", line 5; tests/test_token.py:33: AssertionError',
    "    if token == expected or password != given:\n       ^^^^^^^^^^^^^^^^^",
    "    return self.secret\n           ^^^^^^^^^^^",
    "    password =\n    ^^^^^^^^",
    "columns ['user', 'token', 'count']",
    "Bearer token is missing, Bearer authentication failed, Basic usage",
    "design=flat sigma=0.5 signed=yes bypass: no",
]


@pytest.mark.parametrize("text", WITHOUT_SECRETS)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert redact(text) == text


#: Keys whose values are secrets, as they are called in Flink, Kafka, S3, Azure, JDBC and HTTP.
KEYS = [
    *("password", "Passwd", "PWD", "passphrase", "secret", "token", "sasl.password", "ssl.key.password", "sslpassword"),
    *("fs.s3a.secret.key", "s3.secret-key", "AWS_SECRET_ACCESS_KEY", "client_secret", "X-Auth-Token", "session.token"),
    *("fs.azure.account.key.shop.dfs.core.windows.net", "AccountKey", "SharedAccessKey", "fs.s3a.encryption.key"),
    *("api_key", "api-key", "apikey", "ssl.keystore.key", "ssl.key.pem", "private_key", "service-key", "auth-params"),
    *("basic-auth", "basic.auth.user.info", "sig", "X-Amz-Signature", "fs.s3a.access.key", "AWS_ACCESS_KEY_ID"),
    *("accesskey", "dfs.adls.oauth2.credential", "gcs.credentials.json", "fs.azure.sas.shop.blob", "ssl.keystore.pass"),
    *("fs.s3a.bucket.a.server-side-encryption.key", "sasl.oauthbearer.jwks.endpoint.url"),
]
#: How a value without blanks and quotes is assigned to a key.
PLAIN = [
    *("{k}={v}", "{k}: {v}", "{k}:{v}", "{k} = {v}", "{k}  =  {v}", "{k} => {v}", "{k}:={v}", "--{k} {v}", "--{k}={v}"),
    *("jdbc:x://db/y?{k}={v}&ssl=1", "'jdbc:x://db/y?{k}={v}'", "a=b,{k}={v}", "[{k}={v}]", "user:me,{k}:{v}"),
]
#: How a value of any characters is, and how it is written.
QUOTED: dict[str, Callable[[str], str]] = {
    "{k}={v}": repr,
    "{k}: {v},": repr,
    "('{k}', {v})": repr,
    '["{k}", {v}]': json.dumps,
    "{{'{k}': {v}, 'n': 1}}": repr,
    "{{b'{k}': {v}}}": lambda value: repr(value.encode()),
    '{{"{k}": {v}}}': json.dumps,
    '{{"{k}" : [{v}]}}': json.dumps,
    "'{k}' = {v}": lambda value: "'" + value.replace("\\", "/").replace("'", "''") + "'",
    '{k}="{v}"': lambda value: value.replace("\\", "\\\\").replace('"', '\\"'),
}
MARK = "HUNTER2"
#: Parts of values without blanks, in which quotes and brackets are followed by letters.
BLANKLESS = st.lists(
    st.sampled_from([*"abcXYZ019!#$%+/@^~|?._-=", *(f"{char}x" for char in "'\"()[]{}<>,;:*\\")]), max_size=9
).map("".join)
ANY_TEXT = st.text(
    st.characters(codec="utf-8", exclude_characters="\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=9
)


@given(st.sampled_from(KEYS), st.sampled_from(PLAIN), BLANKLESS, BLANKLESS)
def test_a_secret_is_masked_in_every_form_of_an_assignment(key: str, form: str, before: str, after: str) -> None:
    assume(not (form.startswith("--{k} ") and before.startswith("--")))
    text = f"refused: {form.format(k=key, v=before + MARK + after)} by the host"
    masked = redact(text)
    assert MARK not in masked and masked.startswith("refused: ")
    # a quote or a bracket that is not closed hides the rest of the line
    assert masked.endswith(" by the host") or set(before) & set("'\"([{")
    assert redact(masked) == masked


@given(st.sampled_from(KEYS), st.sampled_from(list(QUOTED)), ANY_TEXT, ANY_TEXT)
def test_a_secret_in_quotes_is_masked_whatever_it_holds(key: str, form: str, before: str, after: str) -> None:
    text = f"refused: {form.format(k=key, v=QUOTED[form](before + MARK + after))}\nthe next line"
    masked = redact(text)
    assert MARK not in masked and masked.startswith("refused: ") and masked.endswith("\nthe next line")
    assert redact(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        "password='it's HUNTER2' refused",
        "password=it's-HUNTER2 refused",
        "jdbc:x://db/y?password=a&HUNTER2 refused",
        "password=(a)HUNTER2 refused",
        "Bearer HUNTER2",
        'authorization: Digest username="a", response="HUNTER2"',
        "curl -H 'Authorization: Basic HUNTER2' x",
        "https://HUNTER2@host/simple and https://HUNTER2@host:8443/simple",
        "postgresql://me:it's'HUNTER2@db/shop",
        "postgresql://me@corp:HUNTER2@db/shop",
        "-----BEGIN RSA PRIVATE KEY-----\nAAAA\nHUNTER2\n-----END RSA PRIVATE KEY-----",
        "ssl.keystore.key=-----BEGIN PRIVATE KEY-----\nHUNTER2",
        r'"{\"token\": \"a\\\"HUNTER2\"}"',
        "{'password': {'old': 'x', 'new': 'HUNTER2'}, 'n': 1}",
        'sasl.jaas.config=Plain required username="a" password="a;b;HUNTER2";',
    ],
)
def test_a_secret_is_masked_in_other_forms(text: str) -> None:
    masked = redact(text)
    assert "HUNTER2" not in masked and redact(masked) == masked


def test_a_long_text_shows_no_end_of_a_secret_whose_key_is_left_out() -> None:
    for length in (0, 1_000, 6_000):
        text = f"{'x ' * 50_000}password='{'y ' * length}HUNTER2' {'z ' * 1_000}"
        assert "HUNTER2" not in str(ConfigurationError(text)) + message_of(ValueError(text))


@pytest.mark.parametrize(
    "text",
    [
        "fs.s3a.secret.key: [HUNTER2\nx: 1",
        "flinkish.token: &x HUNTER2: y\n",
        "a: *HUNTER2\n",
        'a: "\\HUNTER2"\n',
        "a: {HUNTER2\x07: 1}\n",
        "HUNTER2\n",
    ],
)
def test_what_cannot_be_read_in_the_configuration_is_not_quoted(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_yaml("parallelism.default: 2\n" + text, "conf/flinkish.yaml")
    shown = "".join(traceback.format_exception(refused.value))
    assert "HUNTER2" not in shown and "conf/flinkish.yaml" in shown
    assert "line 2, column" in shown or "line 3, column" in shown or text.strip() == "HUNTER2" or "\x07" in text


@pytest.mark.parametrize("option", [option for theme in groups().values() for option in theme], ids=lambda o: o.key)
def test_no_option_quotes_a_value_that_it_cannot_read(option: ConfigOption[Any]) -> None:
    for value in ("HUNTER2", "-1 HUNTER2", "5 HUNTER2", "{HUNTER2", "a:b,HUNTER2", "HUNTER2:'"):
        try:
            option.parse(value)
        except ConfigurationError as error:
            assert "HUNTER2" not in "".join(traceback.format_exception(error)) and option.key in str(error)


def test_the_entries_of_a_map_are_masked_by_their_own_keys() -> None:
    key, value = "pipeline.global-job-parameters", "user:ann,db-token:'a b, HUNTER2',url:'http://x'"
    assert redacted({key: value}) == {key: "user:ann,db-token:******,url:'http://x'"}
    assert redacted({key: "no map, password"}) == {key: "******"}


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


#: Keys that Flink, Spark or Hadoop hide by default, and others like them; and keys that nobody hides.
HIDDEN_KEYS = [
    *KEYS,
    *("authorization", "http.authorization.header", "Proxy-Authorization", "flink.source.http-headers", "set-cookie"),
    *("sasl.jaas.config", "fs.s3a.encryption.algorithm", "fs.s3a.encryption.context", "spark.sas", "sas-key"),
    *("hadoop.security.sensitive-config-keys", "fs.azure.account.oauth2.client.secret", "fs.adl.oauth2.refresh.token"),
    *("my.oauth.password", "fs.s3.awsSecretAccessKey", "spark.ssl.keyPassword", "env.AWS_SESSION_TOKEN", "db_pass"),
]
SHOWN_KEYS = [
    *("pipeline.name", "fs.s3a.aws.credentials.provider", "hadoop.security.credential.provider.path", "state.backend"),
    *(
        "sasl.mechanism",
        "security.protocol",
        "s3.path-style-access",
        "pipeline.passes",
        "parallelism.default",
        "bypass",
    ),
    *("ssl.keystore.location", "key.serializer", "sassafras", "fs.s3a.endpoint", "access.mode", "design", "disaster"),
]


def test_one_list_says_which_settings_every_view_hides() -> None:
    settings = dict.fromkeys([*HIDDEN_KEYS, *SHOWN_KEYS], "HUNTER2")
    assert {key for key, value in redacted(settings).items() if value == "******"} == set(HIDDEN_KEYS)
    assert str(Configuration.from_dict(settings)).count("HUNTER2") == len(SHOWN_KEYS)
    assert not [key for key in HIDDEN_KEYS if "HUNTER2" in redact(f"{key}=HUNTER2") + redact(f"'{key}': 'HUNTER2'")]


@pytest.mark.parametrize(("regex", "hidden"), [("(?i)CORP|vault", ["my.corp", "vault"]), ("(", None), ("", [])])
def test_what_the_programs_own_setting_of_spark_hides_is_hidden_too(regex: str, hidden: list[str] | None) -> None:
    settings = {"my.corp": "HUNTER2", "vault": "HUNTER2", "a.b": "HUNTER2", "spark.redaction.regex": regex}
    found = [key for key, value in redacted(settings).items() if value == "******"]
    assert found == (list(settings) if hidden is None else hidden)


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
