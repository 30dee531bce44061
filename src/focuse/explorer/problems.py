"""Errors as the API tells them: a status, what is wrong, what to do."""

from __future__ import annotations

from focuse.explorer.schemas import Problem


class Refused(Exception):  # noqa: N818 - an answer, not a fault of the server
    """A request that cannot be answered, with its HTTP status, and the seconds after which to ask again."""

    def __init__(
        self, status: int, error: str, hint: str = "", nearest: list[str] | None = None, again: int | None = None
    ) -> None:
        super().__init__(error)
        self.status, self.again = status, again
        self.problem = Problem(error=error, hint=hint, nearest=nearest or [])
