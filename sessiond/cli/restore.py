"""`sessiond restore`: a session's own files back, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sessiond.cli import terminal, times
from sessiond.cli.answer import answering
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.cli.resume import resume_argv, resume_command
from sessiond.store import reader, restore
from sessiond.units import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sessiond.store.restore import Part


@click.command(
    "restore",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(
        ("sessiond restore 3f2a --to /tmp/back", "look at it first"),
        ("sessiond restore 3f2a --to ~/.claude", "straight back to where the agent finds it"),
    ),
)
@click.argument("uid")
@click.option(
    "--to", "to_folder", type=click.Path(), required=True, metavar="DIR",
    help="Where to write; nothing is ever overwritten.",
)  # fmt: skip
@click.option("--generation", type=click.IntRange(min=1), metavar="N", help="An older content of its main file.")
@click.option("--partial", is_flag=True, help="Write what is there, even if a part is no longer in the archive.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def command(
    config_file: Path | None, /, uid: str, to_folder: str, generation: int | None, partial: bool, as_json: bool
) -> None:
    """Write a session's own files back below DIR, as the agent lays them out.

    Byte for byte, unmasked, private to you, sub-agents included. If a part was evicted it says which, writes nothing
    and exits with 1, unless --partial is given.
    """
    folder = Path(to_folder).expanduser().absolute()
    with answering(config_file) as answer:
        session = reader.session(answer.db, reader.resolve_uid(answer.db, uid))
        parts = restore.plan(answer.db, session.session_uid, generation=generation)
        written = restore.write(answer.db, parts, folder, partial=partial)
        if as_json:
            files = [_file(part, path) for part, path in zip(parts, written, strict=True)]
            is_whole = all(part.complete for part in parts)
            answer.print_object(
                {"session_uid": session.session_uid, "files": files, "whole": is_whole, "resume": resume_argv(session)}
            )
            return
        _print(parts, written)
        resume = resume_command(session)
        if resume:
            to = terminal.stdout()
            to.line(to.style("resume: ", "dim") + answer.words(resume))


def _file(part: Part, path: Path) -> dict[str, object]:
    return {"path": str(path), "bytes": part.size, "missing": list(part.missing) if part.missing else None}


def _print(parts: Sequence[Part], written: Sequence[Path]) -> None:
    to = terminal.stdout()
    for part, path in zip(parts, written, strict=True):
        to.line(f"{terminal.plain(str(path))}  {to.style(format_size(part.size), 'dim')}")
        if part.missing:
            start, stop = part.missing
            terminal.say_note(f"bytes {start:,} to {stop:,} of it are missing: they were evicted")
    total = sum(part.size for part in parts)
    to.line(f"{times.count(len(written), 'file')} restored, {format_size(total)}")
