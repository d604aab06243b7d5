"""`sessiond config`: is it right, what holds, which files, and one to begin with."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from sessiond import paths
from sessiond.cli import terminal, times
from sessiond.cli.group import SETTINGS, Command, FamilyGroup, examples
from sessiond.cli.output import print_json
from sessiond.cli.table import Column, print_table
from sessiond.config.files import locate, read
from sessiond.errors import ConfigError, Forbidden, SessiondError

if TYPE_CHECKING:
    from pathlib import Path

    from sessiond.config.load import Loaded

PRIVATE_FILE = 0o600


@click.group(
    "config",
    cls=FamilyGroup,
    context_settings=SETTINGS,
    epilog=examples(
        ("sessiond config init", "a file to begin with: every key, its default, its meaning"),
        ("sessiond config check && sessiond reload", "look before you leap"),
        ("$EDITOR $(sessiond config path)", "edit it"),
    ),
)
def command() -> None:
    """Check, show, find or begin the configuration."""


@command.command("check", cls=Command)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def check(context: click.Context, as_json: bool) -> None:
    """Say everything that is wrong with the configuration; exit code 78 if anything is."""
    try:
        loaded = _load(context.obj)
    except ConfigError as error:
        if not as_json:
            raise
        print_json({"ok": False, "problems": str(error).splitlines(), "warnings": []})
        context.exit(error.exit_code)
    if as_json:
        files = [str(path) for path in loaded.files]
        print_json({"ok": True, "problems": [], "warnings": list(loaded.warnings), "files": files})
        return
    for warning in loaded.warnings:
        terminal.say_note(f"warning: {warning}")
    checked = ", ".join(terminal.shown_path(str(path)) for path in loaded.files)
    terminal.stdout().line(f"{checked}: no mistakes" if checked else "no configuration file: the defaults hold")


@command.command("show", cls=Command)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def show(config_file: Path | None, /, as_json: bool) -> None:
    """Every value that holds, and where it comes from."""
    from sessiond.config.load import values_of
    from sessiond.mask import Masker

    loaded = _load(config_file)
    mask = Masker(loaded.config.privacy.mask)
    values = values_of(loaded.config)
    if as_json:
        pairs = {key: {"value": value, "origin": loaded.origins[key]} for key, value in values.items()}
        print_json(mask.mask_json(_about(loaded)) | {"values": _masked(mask, pairs)})
        return
    to = terminal.stdout()
    rows = [
        (key, mask.mask(json.dumps(value, ensure_ascii=False)), terminal.shown_path(loaded.origins[key]))
        for key, value in values.items()
    ]
    columns = (
        Column("KEY"),
        Column("VALUE", shrinks_to=12, style=lambda _: ("bold",)),
        Column("FROM", shrinks_to=12, style=lambda text: ("dim",) if text == "default" else ("cyan",)),
    )
    print_table(to, columns, rows)


def _about(loaded: Loaded) -> dict[str, Any]:
    return {
        "path": None if loaded.path is None else str(loaded.path),
        "files": [str(path) for path in loaded.files],
        "warnings": list(loaded.warnings),
        "as_of": times.iso(times.now()),
        "complete": True,
    }


def _masked(mask: Any, pairs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    # Key by key: a setting's name ("privacy.mask") must not make the masker take its value for a secret.
    return {key: {name: mask.mask_json(each) for name, each in pair.items()} for key, pair in pairs.items()}


@command.command("path", cls=Command)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def path(config_file: Path | None, /, as_json: bool) -> None:
    """Which files are read, in their order; the main one also when it is not there yet."""
    env = paths.environment()
    located = locate(config_file, env)
    is_there = located.main.exists()
    files = read(config_file, env).files if is_there or not located.is_named else [located.main]
    if as_json:
        told = {"path": str(located.main), "exists": is_there, "files": [str(each) for each in files]}
        print_json(told | {"drop_ins": str(located.drop_ins)})
        return
    to = terminal.stdout()
    for each in files if located.main in files else [*files, located.main]:
        to.line(terminal.plain(str(each)))
    if not is_there:
        terminal.say_note(f"{terminal.shown_path(str(located.main))} is not there yet: sessiond config init writes it")


@command.command("init", cls=Command)
@click.pass_obj
def init(config_file: Path | None, /) -> None:
    """Write a configuration to begin with: every key with its default and its meaning. Never overwrites."""
    from sessiond.config.docs import render_example

    target = locate(config_file, paths.environment()).main
    shown = terminal.shown_path(str(target))
    try:
        paths.make_folders(target.parent)
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
    except FileExistsError:
        raise SessiondError(f"{shown} exists already", hint="edit it, or move it away first") from None
    except PermissionError as error:
        raise Forbidden(f"cannot write {shown}: {error.strerror}") from None
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(render_example())
    terminal.stdout().line(f"{shown} written; every key in it has its default until you change it")


def _load(config_file: Path | None) -> Loaded:
    # Late: pydantic is needed here and for no other verb of this family.
    from sessiond.adapters import adapters
    from sessiond.config.load import load

    return load(config_file, paths.environment(), set(adapters()))
