"""The words and signs of SQL text, a cursor over them, and the errors that name their places.

Rule upheld here: what is not supported is refused by its name (`refusals`), with what to write instead. An error quotes
no text literal, which may be a secret.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, TypeVar

from flinkish.common.arguments import check_instance
from flinkish.errors import ProgramError
from flinkish.table.refusals import REFUSALS
from flinkish.table.syntax import Position

T = TypeVar("T")

#: How deep expressions and queries may be nested, and how long a text may be.
MAX_DEPTH, MAX_CHARACTERS = 100, 1 << 19

_TOKEN = re.compile(
    r"(?P<blank>\s+|--[^\n]*|/\*(?!\+).*?\*/)|(?P<text>(?:[xX]|[uU]&)?'[^']*(?:''[^']*)*')"
    r"|(?P<quoted>`[^`]*(?:``[^`]*)*`)|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<word>[^\W\d][\w$]*)|(?P<open>(?:'|`|/\*(?!\+)).*)|(?P<sign>/\*\+|=>|<>|!=|<=|>=|\|\||.)",
    re.DOTALL,
)
#: What errors leave out: comments, and texts, also if they do not end or stand in the quotes of other languages.
_UNSHOWN = re.compile(
    r"(--[^\n]*|/\*(?!\+)(?:.*?\*/|.*))|(`[^`]*`?)|(?:[xX]|[uU]&)?'[^']*(?:''[^']*)*(?:'|(\Z))|\"[^\"]*\"?", re.DOTALL
)
#: Nobody knows where texts end of which one does not, or is followed by what may be the rest of it.
_UNKNOWN = re.compile(r"\0|'\.\.\.'[^\s,;)\]=|]")
#: Behind this stand values, perhaps without quotes: the options of a table, of a hint, and what is SET.
_VALUES = re.compile(r"\bWITH ?\(|/\*\+|(?<=\bSET)(?<!`SET)(?!\w| ?(?:BEGIN\b|;))", re.IGNORECASE)
_OPEN = {"'": "the quote ' is not closed", "`": "the quote ` is not closed", "/": "the comment /* is not closed"}
#: Words that are no names unless they stand in backticks, because they go on with a query or an expression.
RESERVED = frozenset(
    "ALL AND AS ASC BETWEEN BY CASE CAST CREATE CROSS DESC DISTINCT ELSE END EXCEPT EXISTS FETCH FOR FROM FULL GROUP "
    "HAVING IN INNER INSERT INTERSECT INTO IS JOIN LATERAL LEFT LIKE LIMIT MATCH_RECOGNIZE MINUS NATURAL NOT NULL "
    "OFFSET ON OR ORDER OUTER OVER PARTITION QUALIFY RIGHT SELECT SIMILAR TABLE TABLESAMPLE THEN TRUE FALSE UNION "
    "UNNEST USING VALUES WHEN WHERE WINDOW WITH WITHIN".split()
)


class Token(NamedTuple):
    """A word or sign. ``kind``: word, quoted, text, number, sign, or end; ``upper``: a word in capital letters, or a
    sign; empty for the others, which are no word of SQL whatever they contain."""

    kind: str
    text: str
    upper: str
    start: int


class Tokens:
    """A cursor over the words and signs of a text.

    Raises:
        ProgramError: the text is none, is too long, or has a quote or comment that does not end.
    """

    def __init__(self, sql: str, what: str = "SQL", where: str = "execute_sql()") -> None:
        check_instance(sql, str, "the statement is", where, "give SQL as a text")
        self.sql, self.what, self.index, self.depth, self.height, self.weight = sql, what, 0, 0, 0, 0
        #: whether what comes next may be a secret, which no error quotes
        self.private = False
        self._lines = [0]
        if len(sql) > MAX_CHARACTERS:
            hint = "keep values in a file or a table that the statement reads"
            raise self.error(f"the text has {len(sql):,} characters", None, f"at most {MAX_CHARACTERS:,}", hint)
        self._lines += [match.end() for match in re.finditer("\n", sql)]
        self.tokens: list[Token] = []
        for match in _TOKEN.finditer(sql):
            kind, text, start = match.lastgroup or "", match[0], match.start()
            if kind == "open":
                raise self.error(_OPEN[text[0]], start)
            if kind != "blank":
                upper = text.upper() if kind == "word" else text if kind == "sign" else ""
                text = text[1:-1].replace("``", "`") if kind == "quoted" else text
                self.tokens.append(Token(kind, text, upper, start))
        self.tokens.append(Token("end", "", "", len(sql)))

    @property
    def next(self) -> Token:
        return self.tokens[self.index]

    def ahead(self, count: int = 1) -> Token:
        """The token behind the next one, one further on, or with -1 the one before it; else the end."""
        index = self.index + count
        return self.tokens[index if 0 <= index < len(self.tokens) else -1]

    def take(self) -> Token:
        token = self.tokens[self.index]
        self.index += token.kind != "end"
        return token

    def starts(self, words: str) -> bool:
        wanted = words.split(" ")
        found = self.tokens[self.index : self.index + len(wanted)]
        return [token.upper for token in found] == wanted

    def accept(self, *choices: str) -> str:
        """Go beyond the first of these sequences of words that comes next, and return it; if none does, stay."""
        upper = self.tokens[self.index].upper
        for words in choices if upper else ():
            if words == upper:
                self.index += 1
                return words
            if " " in words and words.startswith(upper) and self.starts(words):
                self.index += words.count(" ") + 1
                return words
        return ""

    def expect(self, *choices: str) -> str:
        """As `accept`, but one of them must come."""
        return self.accept(*choices) or self.unexpected(" or ".join(choices))

    def name(self, what: str = "a name") -> str:
        token = self.next
        if token.kind == "quoted" and token.text or token.kind == "word" and token.upper not in RESERVED:
            return self.take().text
        if token.kind != "word" or token.upper in ("LATERAL", "UNNEST", "EXISTS"):
            self.unexpected(what)
        hint = f"a name that is a word of SQL stands in backticks: `{token.text}`"
        raise self.error(f"the statement cannot be read at '{token.text}'", token.start, what, hint)

    def path(self, what: str = "the name of a table") -> str:
        """A name, perhaps with those of Flink's default catalog and database before it, which are left out."""
        parts = [self.name(what)]
        while self.accept("."):
            parts.append(self.name(what))
        return unqualified(parts)

    def text(self, what: str) -> str:
        if self.next.kind != "text" or self.next.text[0] != "'":
            self.unexpected(what)
        return self.take().text[1:-1].replace("''", "'")

    def number(self, what: str) -> int:
        if self.next.kind != "number" or not self.next.text.isdigit() or len(self.next.text) > 18:
            self.unexpected(what)
        return int(self.take().text)

    def listed(self, item: Callable[[], T]) -> tuple[T, ...]:
        items = [item()]
        while self.accept(","):
            items.append(item())
        return tuple(items)

    def in_brackets(self, item: Callable[[], T]) -> tuple[T, ...]:
        self.expect("(")
        items = self.listed(item)
        self.expect(")")
        return items

    def enter(self) -> None:
        """Note that the text goes one step deeper. Who calls it subtracts 1 from ``depth`` behind that."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.too_deep()

    def rise(self, by: int = 1) -> None:
        """Note that the tree of the expression that is being read gets higher, though the text does not go deeper."""
        self.height += by
        if self.height > MAX_DEPTH:
            raise self.too_deep()

    def weigh(self, by: int) -> None:
        """Note that the tree of the statement has so many expressions more than the text, which stand in it again."""
        self.weight += by
        if self.weight > MAX_CHARACTERS:
            raise self.too_deep()

    def too_deep(self) -> ProgramError:
        return self.error(
            "the statement is nested too deeply", self.next.start, f"at most {MAX_DEPTH} steps",
            "give the inner parts names: CREATE TEMPORARY VIEW v AS ..., or WITH v AS (...)",
        )  # fmt: skip

    # --- errors ---

    def position(self, start: int) -> Position:
        line = bisect_left(self._lines, start + 1)
        return Position(line, start - self._lines[line - 1] + 1)

    def error(self, what: str, start: int | None = None, expected: str = "", hint: str = "") -> ProgramError:
        what += "" if start is None else f", {self.position(start)}"
        return ProgramError(what, where=f"{self.what}: {shown_sql(self.sql)}", expected=expected, hint=hint)

    def unexpected(self, expected: str) -> NoReturn:
        """Raise the error of a text that does not go on as it must. A construct that has a name is refused by it."""
        token = self.next
        if token.upper in REFUSALS:
            self.refused(token.upper)
        before = self.ahead(-1)  # of a text with a quote in it, the rest is behind it
        hidden = self.private or before.kind == "text" and before.start + len(before.text) == token.start
        kind = {"end": "the end", "quoted": "a name"}.get(token.kind, f"a {token.kind}")
        found = kind if hidden or token.kind in ("end", "text") else f"'{token.text:.60}'"
        raise self.error(f"the statement cannot be read at {found}", token.start, expected)

    def refused(self, construct: str) -> NoReturn:
        """Raise the error of a construct that is not supported."""
        name, expected, hint = REFUSALS[construct]
        raise self.error(name, self.next.start, expected, hint)


def shown_sql(sql: Any) -> str:
    """The beginning of a statement, for errors: texts as '...', and no comments, no options and nothing that is SET."""
    kinds = ("'...'", " ", None, "\0")
    text = _UNSHOWN.sub(lambda found: kinds[found.lastindex or 0] or found[2], str(sql)[:MAX_CHARACTERS])
    if _UNKNOWN.search(text):
        text = re.split(r"'\.\.\.'|\0", text, maxsplit=1)[0]
    return _VALUES.split(" ".join(text.split()), maxsplit=1)[0][:300].rstrip()


def where_of(sql: str) -> str:
    """Where the error of a statement is."""
    return f"SQL: {shown_sql(sql)}"


def unqualified(parts: list[str]) -> str:
    """The name of a table without Flink's default catalog and database."""
    for default in ("default_catalog", "default_database"):
        parts = parts[1:] if len(parts) > 1 and parts[0] == default else parts
    return ".".join(parts)
