"""`sessiond exclude`: folders of which nothing is kept, as a drop-in beside the user's configuration."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from sessiond import paths
from sessiond.cli import terminal, times
from sessiond.cli.answer import locate
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.cli.output import print_json
from sessiond.cli.reload import PATIENCE_SECONDS
from sessiond.cli.table import Column, print_table
from sessiond.config import dropin
from sessiond.config.exclusion import Exclusion
from sessiond.errors import NotRunning, UsageError
from sessiond.serve.client import Client

if TYPE_CHECKING:
    from pathlib import Path

    import apsw

COLUMNS = (Column("PATTERN", style=lambda _: ("bold",)), Column("FROM", style=lambda _: ("cyan",)))


@click.command(
    "exclude",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(
        ("sessiond exclude ~/private", "nothing of sessions in this folder, or below it, from now on"),
        ("sessiond exclude '/srv/*/secret'", "* stays within a folder, ** crosses folders"),
        ("sessiond exclude .", "the folder you are in"),
        ("sessiond exclude --list", "all rules, and the file that each is in"),
    ),
)
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
@click.option("--list", "as_list", is_flag=True, help="Show all rules and where they are written.")
@click.option("--remove", metavar="PATTERN", help="Take a rule out again that this command wrote.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def command(
    config_file: Path | None, /, patterns: tuple[str, ...], as_list: bool, remove: str | None, as_json: bool
) -> None:
    """Keep nothing of sessions in these folders, from now on: the folder and all below it.

    Writes config.d/80-exclude.toml beside your configuration, never your own file, and lets the daemon know. What was
    stored before stays; how to forget it is said.
    """
    if bool(patterns) + as_list + (remove is not None) != 1:
        raise UsageError("exclude takes patterns, --list or --remove", hint="see: sessiond exclude --help")
    env = paths.environment()
    now = dropin.excluded(config_file, env)
    if as_list:
        _list(now, as_json=as_json)
        return
    if remove is not None:
        dropin.remove(now, remove, env)
        changed = [remove]
    else:
        changed = dropin.add(now, [_absolute(each) for each in patterns], env)
    report = {
        "removed" if remove is not None else "added": changed,
        "file": str(now.drop_in),
        "is_in_force": _reload() if changed else True,
        "stored": len(_stored(config_file)) if remove is None else 0,
    }
    if as_json:
        print_json({**report, "as_of": times.iso(times.now()), "complete": True})
    else:
        _print(report, is_removed=remove is not None)


def _absolute(text: str) -> str:
    """`.` and what begins with it is meant from here; all else is taken as the configuration takes it."""
    return os.path.abspath(text) if text in (".", "..") or text.startswith(("./", "../")) else text


def _reload() -> bool:
    """Whether it holds already; without a daemon it does when one starts."""
    try:
        Client(paths.resolve(paths.environment()).socket, PATIENCE_SECONDS).call("reload")
    except NotRunning:
        return False
    return True


# --- what is stored already ---------------------------------------------------------------------


def _stored(config_file: Path | None) -> list[str]:
    from sessiond.store import connect

    at, _ = locate(config_file)
    if not at.store.exists():
        return []
    with connect.reading(at.store) as db:
        return sorted(covered(config_file, db))


def covered(config_file: Path | None, db: apsw.Connection) -> set[str]:
    """The stored sessions that the rules cover: by working folder, repository or, without either, the file's path."""
    from sessiond.store import forget

    env = paths.environment()
    rules = Exclusion(dropin.excluded(config_file, env).patterns, env)
    verdicts: dict[str, bool] = {}
    found = set()
    for uid, places in forget.places(db):
        for place in places:
            if place not in verdicts:
                verdicts[place] = rules.matches(place)
        if any(verdicts[place] for place in places):
            found.add(uid)
    return found


# --- telling ------------------------------------------------------------------------------------


def _list(now: dropin.Excluded, *, as_json: bool) -> None:
    rules = now.rules
    if as_json:
        told = [{"pattern": each.pattern, "file": str(each.file)} for each in rules]
        print_json({"exclude": told, "as_of": times.iso(times.now()), "complete": True})
        return
    if not rules:
        terminal.say_note("nothing is excluded")
        return
    print_table(terminal.stdout(), COLUMNS, [(each.pattern, terminal.shown_path(str(each.file))) for each in rules])


def _print(report: dict[str, Any], *, is_removed: bool) -> None:
    to = terminal.stdout()
    changed = report["removed" if is_removed else "added"]
    for pattern in changed:
        to.line(f"{'no longer excluded' if is_removed else 'excluded'}: {terminal.plain(pattern)}")
    if not changed:
        to.line("excluded already")
    elif not report["is_in_force"]:
        to.line("it takes effect when the daemon starts")
    if report["stored"]:
        terminal.say_note(
            f"{times.count(report['stored'], 'session')} of excluded folders were stored before and stay; "
            "to delete them: sessiond forget --excluded"
        )
