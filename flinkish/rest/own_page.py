"""Our own page: what Flink's Web UI cannot show, such as epochs with their phases and what holds a watermark back.

It is three files of the package, which need no build step and no download; its URLs are relative, so that it also works
behind a proxy that puts something before the path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import resources

from flinkish.rest.api import Answer, Files, unless_known

_TYPES = {
    "flinkish.html": "text/html; charset=UTF-8",
    "flinkish.css": "text/css; charset=UTF-8",
    "flinkish.js": "text/javascript; charset=UTF-8",
}
#: Nothing but these files, and the driver itself, is loaded by the page.
_POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src data:; frame-ancestors 'self'"


class OwnPage:
    """The files of the page, and behind them those of Flink's Web UI.

    Args:
        others: what answers all other paths.
    """

    def __init__(self, others: Files) -> None:
        self._others = others
        folder = resources.files("flinkish.rest").joinpath("page")
        self._files = {f"/{name}": folder.joinpath(name).read_bytes() for name in _TYPES}

    def answer(self, path: str, headers: Mapping[str, str]) -> Answer | None:
        """The answer to a request for a file; None if there is none of that name."""
        body = self._files.get(path)
        if body is None:
            return self._others.answer(path, headers)
        found = unless_known(Answer(200, body, _TYPES[path[1:]]), headers)
        return replace(found, headers=(*found.headers, ("content-security-policy", _POLICY)))
