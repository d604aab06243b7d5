"""`sessiond status`: what the daemon is doing, on a page that one likes to look at. Light: see tests/cli/test_light."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sessiond import paths
from sessiond.cli import status_page, terminal, times
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.serve.client import Client

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def ask_status() -> dict[str, Any]:
    """The daemon's own words, masked by it; NotRunning without one."""
    answer = Client(paths.resolve(paths.environment()).socket).call("status")
    return answer if isinstance(answer, dict) else {}


def is_complete(status: Mapping[str, Any]) -> bool:
    return status.get("state") == "ready"


@click.command(
    "status",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(
        ("sessiond status", "everything on one page"),
        ("sessiond status --json | jq .degraded", "for a monitor"),
    ),
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option("--acknowledge", is_flag=True, help="The data-loss reports were read: do not show them any more.")
@click.pass_obj
def command(config_file: Path | None, /, as_json: bool, acknowledge: bool) -> None:
    """What the daemon is doing, and whether all is well.

    Exits 0 whenever the daemon answers, 69 when it is not running.
    """
    if acknowledge:
        from sessiond.cli.byhand import work

        read = work(config_file, "acknowledge")["acknowledged"]
        # Not on stdout, which is the page or its JSON; and told first: without a daemon there is no page.
        terminal.say_note(f"{times.count(read, 'data-loss report')} acknowledged")
    status = ask_status()
    if not as_json:
        status_page.print_page(terminal.stdout(), status)
        return
    from sessiond.cli.output import print_json

    status.setdefault("as_of", times.iso(times.now()))
    status.setdefault("complete", is_complete(status))
    print_json(status)
