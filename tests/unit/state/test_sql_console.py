"""What `flinkish sql` takes for a statement."""

from __future__ import annotations

import pytest

from flinkish.state.console import statements, typed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1; SELECT 2;\n", ["SELECT 1", "SELECT 2"]),
        ("SELECT ';' AS `a;b`", ["SELECT ';' AS `a;b`"]),
        ("SELECT 'it\\';s'; SELECT 2", ["SELECT 'it\\';s'", "SELECT 2"]),
        ('SELECT "x;y"; SELECT 2', ['SELECT "x;y"', "SELECT 2"]),
        ("-- a; comment\n;; /* only; a comment */ ;", []),
        ("SELECT 1 -- one; of them\n + 1", ["SELECT 1 -- one; of them\n + 1"]),
    ],
)
def test_semicolons_separate_statements_but_in_texts_names_and_comments(text: str, expected: list[str]) -> None:
    assert statements(text) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["SELECT\n", "1;\n", "SELECT 2"], ["SELECT\n1", "SELECT 2"]),
        (["SELECT 1;\n", "exit\n", "SELECT 2;\n"], ["SELECT 1"]),
        (["QUIT;\n", "SELECT 2;\n"], []),
        (["SELECT ';'\n", ", 2;\n"], ["SELECT ';'\n, 2"]),
    ],
)
def test_a_statement_that_somebody_types_ends_with_a_semicolon_at_the_end_of_a_line(
    lines: list[str], expected: list[str]
) -> None:
    assert list(typed(lines)) == expected
