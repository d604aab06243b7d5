"""The verbs, their groups and `--help`. A verb's module is imported when it is called, and no other."""

from __future__ import annotations

import difflib
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from sessiond import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence


class Verb(NamedTuple):
    group: str
    module: str
    summary: str  # here and not in the module: `--help` must not import them all


VERBS: dict[str, Verb] = {
    "status": Verb("Ask", "status", "what the daemon is doing, and whether all is well"),
    "health": Verb("Ask", "health", "the same as an exit code, for scripts and monitors"),
    "sessions": Verb("Ask", "sessions", "list sessions, newest first (also: ls)"),
    "show": Verb("Ask", "show", "one session: what, where, how it ended, how to go on"),
    "events": Verb("Ask", "events", "what happened in a session, step by step"),
    "search": Verb("Ask", "search", "find words in everything that was said and done"),
    "cost": Verb("Ask", "cost", "tokens and USD by day, model, agent, repository or session"),
    "errors": Verb("Ask", "errors", "what keeps going wrong; has this error been seen before?"),
    "patterns": Verb("Ask", "patterns", "what recurs over sessions and agents, with evidence"),
    "restore": Verb("Keep", "restore", "write a session's own files back, byte for byte"),
    "pin": Verb("Keep", "pin", "keep a session whatever the watermarks say"),
    "unpin": Verb("Keep", "unpin", "let the watermarks decide again"),
    "forget": Verb("Keep", "forget", "delete sessions everywhere, for good"),
    "exclude": Verb("Keep", "exclude", "keep nothing of a folder from now on"),
    "pause": Verb("Keep", "pause", "read nothing for a while"),
    "unpause": Verb("Keep", "unpause", "go on reading where it stopped"),
    "run": Verb("Run", "run", "the daemon, in the foreground"),
    "config": Verb("Run", "config", "check, show, find or begin the configuration"),
    "reload": Verb("Run", "reload", "let the daemon read its configuration again"),
    "ingest": Verb("Upkeep", "ingest", "take in everything written until now"),
    "analyze": Verb("Upkeep", "analyze", "distil every session that has new events"),
    "evict": Verb("Upkeep", "evict", "make room by the rules, or say what would go"),
    "reindex": Verb("Upkeep", "reindex", "derive events anew from what was kept, after an upgrade"),
    "verify": Verb("Upkeep", "verify", "compare what was kept with the files that are there"),
}
ALIASES = {"ls": "sessions"}
GROUPS = ("Ask", "Keep", "Run", "Upkeep")
EXAMPLES = (
    ("sessiond run", "start it; then, in another terminal:"),
    ("sessiond sessions --repo . -S today", "what was done here today"),
    ('sessiond search "connection refused"', "where have I seen this before?"),
    ("sessiond show", "the newest session of this repository"),
    ("sessiond restore 3f2a --to /tmp/back", "get a lost session file back"),
)


class Command(click.Command):
    """A verb: `-h`, and a wrong option is answered with the one that was probably meant."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            known = [name for each in self.get_params(ctx) for name in each.opts if isinstance(each, click.Option)]
            raise click.UsageError(_unknown("option", error.option_name, known, ctx.command_path), ctx) from None
        for each in self.get_params(ctx):
            _refuse_bytes(ctx, each)
        return rest

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        if self.epilog:
            formatter.write_paragraph()
            formatter.write(self.epilog)  # its lines as they are: click would fill them into a paragraph


def _refuse_bytes(ctx: click.Context, parameter: click.Parameter) -> None:
    """Words that are no text occur nowhere in the store, and SQLite refuses them; only a path may hold any bytes."""
    given = ctx.params.get(parameter.name or "")
    words = given if isinstance(given, tuple) else (given,)
    if isinstance(parameter.type, click.Path):
        return
    for word in words:
        if isinstance(word, str) and not word.isascii() and word != word.encode("utf-8", "replace").decode():
            fact = f"{parameter.human_readable_name} is no text: there are bytes in it that are not UTF-8"
            raise click.UsageError(f"{fact} (check what encoding the terminal uses)", ctx)


class FamilyGroup(click.Group):
    """A verb with verbs of its own, such as `config check`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not args[0].startswith("-") and args[0] not in self.commands:
            raise click.UsageError(_unknown("verb", args[0], list(self.commands), ctx.command_path), ctx)
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        if self.epilog:
            formatter.write_paragraph()
            formatter.write(self.epilog)


class LazyGroup(click.Group):
    """Knows every verb by name, and loads the one that is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        verb = VERBS.get(ALIASES.get(cmd_name, cmd_name))
        if verb is None:
            return None
        command = importlib.import_module(f"sessiond.cli.{verb.module}").command
        if not isinstance(command, click.Command):
            raise TypeError(f"{verb.module}.command is no verb")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not args[0].startswith("-") and args[0] not in (*VERBS, *ALIASES):
            raise click.UsageError(_unknown("verb", args[0], [*VERBS, *ALIASES], "sessiond"), ctx)
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            known = [name for each in self.get_params(ctx) for name in each.opts]
            raise click.UsageError(_unknown("option", error.option_name, known, "sessiond"), ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        longest = max(map(len, VERBS))
        for group in GROUPS:
            rows = [(name.ljust(longest), verb.summary) for name, verb in VERBS.items() if verb.group == group]
            with formatter.section(group):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            formatter.write_dl(list(EXAMPLES), col_max=44)
        super().format_epilog(ctx, formatter)


def _unknown(what: str, given: str, known: Sequence[str], path: str) -> str:
    near = difflib.get_close_matches(given, known, n=1, cutoff=0.5)
    near = near or [name for name in known if len(given) > 2 and name.startswith(given)][:1]
    hint = f"did you mean {near[0]}?" if near else f"see: {path} --help"
    return f"there is no {what} {given} ({hint})"


def examples(*pairs: tuple[str, str]) -> str:
    """A verb's epilog: commands to copy, and what they are good for."""
    width = max((len(command) for command, words in pairs if _fits(command, words)), default=0)
    lines = [
        f"  {command.ljust(width)}  {words}\n"
        if len(command) <= width and width + len(words) + 4 <= HELP_WIDTH
        else f"  {command}\n      {words}\n"
        for command, words in pairs
    ]
    return "Examples:\n" + "".join(lines)


def _fits(command: str, words: str) -> bool:
    return len(command) + len(words) + 4 <= HELP_WIDTH and len(command) <= HELP_WIDTH // 2


HELP_WIDTH = 80
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(cls=LazyGroup, context_settings=SETTINGS, invoke_without_command=True)
@click.version_option(__version__, message="sessiond %(version)s")
@click.option("--config", "config_file", metavar="FILE", help="The configuration file, instead of the usual one.")
@click.pass_context
def cli(context: click.Context, config_file: str | None) -> None:
    """The session journal for coding agents: it keeps what they wrote, and answers from it."""
    context.obj = None if config_file is None else Path(config_file)
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
