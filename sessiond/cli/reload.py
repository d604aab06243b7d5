"""`sessiond reload`: the daemon reads its configuration again. Light."""

from __future__ import annotations

import click

from sessiond import paths
from sessiond.cli import terminal
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.cli.output import print_json
from sessiond.serve.client import Client

PATIENCE_SECONDS = 30.0  # what was read before is written before the new configuration holds


@click.command(
    "reload",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(("sessiond config check && sessiond reload", "look before you leap")),
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(as_json: bool) -> None:
    """Let the daemon read its configuration again.

    A configuration with mistakes is refused (exit code 78), and the old one stays in force.
    """
    told = Client(paths.resolve(paths.environment()).socket, PATIENCE_SECONDS).call("reload")
    if as_json:
        print_json(told)
        return
    for warning in told.get("warnings") or ():
        terminal.say_note(f"warning: {warning}")
    where = terminal.shown_path(told.get("path")) or "the defaults: there is no configuration file"
    terminal.stdout().line(f"configuration reloaded from {where}")
