"""Hypothesis tries a little in each commit and much in a nightly run, each property in proportion."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.profiles import COMMIT, NIGHTLY, examples, load_profile

TESTS = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("profile", "of_profile", "expected"),
    [(None, 15, [2, 2, 8, 15, 60]), (COMMIT, 15, [2, 2, 8, 15, 60]), (NIGHTLY, 300, [6, 36, 150, 300, 1_200])],
)
def test_a_property_has_examples_in_proportion_to_the_profile(
    profile: str | None, of_profile: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if profile is None:
        monkeypatch.delenv("HYPOTHESIS_PROFILE", raising=False)
    else:
        monkeypatch.setenv("HYPOTHESIS_PROFILE", profile)
    assert [examples(n) for n in (1, 6, 25, 50, 200)] == expected
    assert settings.get_profile(profile or COMMIT).max_examples == of_profile


def test_another_profile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPOTHESIS_PROFILE", "weekly")
    with pytest.raises(ValueError, match="HYPOTHESIS_PROFILE is 'weekly'; expected one of commit, nightly"):
        load_profile()


def test_no_property_has_a_number_of_examples_of_its_own() -> None:
    texts = {path: path.read_text() for path in TESTS.rglob("test_*.py") if path != Path(__file__)}
    assert [path.name for path, text in texts.items() if re.search(r"max_examples=(?!examples\()", text)] == []
