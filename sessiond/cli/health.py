"""`sessiond health`: the state as an exit code. Silent, so that a monitor can call it every few seconds. Light."""

from __future__ import annotations

from typing import Any

import click

from sessiond.cli import terminal
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.cli.status import ask_status
from sessiond.errors import SessiondError


@click.command(
    "health",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(("sessiond health || sessiond health -v", "say something only when something is wrong")),
)
@click.option("-v", "--verbose", is_flag=True, help="Say why.")
@click.pass_context
def command(context: click.Context, verbose: bool) -> None:
    """Whether all is well: exit code 0.

    1: the daemon is paused or degraded. 69: it is not running. Says nothing without -v.
    """
    try:
        status = ask_status()
    except SessiondError as error:
        if verbose:
            terminal.say_error(str(error))
        context.exit(error.exit_code)
    reasons = _reasons(status)
    to = terminal.stdout()
    for line in reasons or ["all is well"]:
        if verbose:
            to.line(terminal.plain(line))
    context.exit(1 if reasons else 0)


def _reasons(status: dict[str, Any]) -> list[str]:
    """Reading history is no fault: what is new is taken in meanwhile."""
    said = []
    if status.get("state") == "paused":
        by = status.get("paused_by") or "user"
        said.append(f"paused: {'by you (fix: sessiond unpause)' if by == 'user' else by}")
    for each in status.get("degraded") or ():
        fix = f" (fix: {each['fix']})" if each.get("fix") else ""
        said.append(f"{each.get('name')}: {each.get('detail') or 'degraded'}{fix}")
    return said
