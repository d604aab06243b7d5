"""What can go wrong, as a person is told it: the fact, and a way out.

    SessiondError          1   something failed
    ├── UsageError         2   the call itself is off (ambiguous UID, unreadable date)
    ├── NotRunning        69   the daemon does not answer
    ├── Busy              75   another instance holds the lock, or the store is locked
    ├── Forbidden         77   permissions are in the way
    └── ConfigError       78   the configuration cannot be used

`BadRecord` is apart: it rejects one line of an agent's file and never reaches a person as an error.
"""

from __future__ import annotations


class SessiondError(Exception):
    """A failure with a message for people; `hint` says what to do about it."""

    exit_code = 1

    def __init__(self, fact: str, *, hint: str | None = None) -> None:
        super().__init__(fact)
        self.fact = fact
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.fact} ({self.hint})" if self.hint else self.fact


class UsageError(SessiondError):
    exit_code = 2


class NotRunning(SessiondError):
    exit_code = 69


class Busy(SessiondError):
    exit_code = 75


class Forbidden(SessiondError):
    exit_code = 77


class ConfigError(SessiondError):
    exit_code = 78


class BadRecord(ValueError):
    """One line that cannot be used; `reason` is a fixed word such as `not_json`, never content."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
