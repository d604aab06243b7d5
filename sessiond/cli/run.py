"""`sessiond run`: the daemon, in the foreground; on a terminal with a live screen, else with its log."""

from __future__ import annotations

import sys
from contextlib import suppress

import click

from sessiond.cli import terminal
from sessiond.cli.group import SETTINGS, Command, examples


@click.command(
    "run",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(
        ("sessiond run", "with a live screen; Ctrl-C stops it"),
        ("sessiond run --log", "with its log instead"),
        ("sessiond --config try.toml run", "with another configuration"),
    ),
)
@click.option("--log", "with_log", is_flag=True, help="The log instead of the live screen, on a terminal too.")
@click.pass_context
def command(context: click.Context, with_log: bool) -> None:
    """The daemon, in the foreground: takes in what your agents write, until Ctrl-C.

    Nothing leaves this machine, and the agents' files are only ever read. On a terminal there is a live screen;
    anywhere else it writes its log to stderr.
    """
    from sessiond import daemon

    if with_log or not (sys.stdout.isatty() and sys.stderr.isatty()):
        context.exit(daemon.run(context.obj))
    from sessiond.cli.answer import locate
    from sessiond.cli.screen import live

    _, masker = locate(context.obj)
    code = daemon.run(context.obj, screen=lambda status: live(lambda: masker.mask_json(status())))
    with suppress(OSError):  # the window may be gone
        terminal.stdout().line("stopped; everything that was read is stored")
        sys.stdout.flush()
    context.exit(code)
