"""How a person goes on with a session: the agent's own command, in the folder it needs."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from sessiond.adapters import adapters

if TYPE_CHECKING:
    from sessiond.model import Session


def resume_argv(session: Session) -> list[str] | None:
    """None where the agent cannot go on with a session, or its adapter is not installed."""
    adapter = adapters().get(session.flavor)
    argv = adapter.resume(session) if adapter is not None else None
    return list(argv) if argv else None


def resume_command(session: Session) -> str | None:
    """A line for a shell. In the folder it was started in: agents look for sessions by it."""
    argv = resume_argv(session)
    folder = session.cwd or session.repo
    if argv is None:
        return None
    return f"cd {shlex.quote(folder)} && {shlex.join(argv)}" if folder else shlex.join(argv)
