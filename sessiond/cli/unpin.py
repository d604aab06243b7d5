"""`sessiond unpin`: let the watermarks decide again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sessiond.cli import options
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.cli.pin import change

if TYPE_CHECKING:
    from pathlib import Path


@click.command(
    "unpin",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(("sessiond unpin 3f2a", "it may be evicted again when room is needed")),
)
@click.argument("uids", nargs=-1, metavar="[UID]...")
@options.which
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def command(config_file: Path | None, /, uids: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Let the watermarks decide about these sessions again; nothing is deleted by this itself."""
    change(config_file, "unpin", uids, given, as_json=as_json)
