"""The grammar that the asking verbs share: which sessions, since when, how many."""

from __future__ import annotations

import difflib
import os
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sessiond import adapters, model, paths
from sessiond.cli import times
from sessiond.errors import SessiondError, UsageError
from sessiond.intake.repo import find_repo
from sessiond.store import glance, reader
from sessiond.units import parse_when

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import apsw

    from sessiond.cli.answer import Answer

F = TypeVar("F", bound="Callable[..., Any]")


def one_of(words: Iterable[str]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Checks an option that may be repeated; a wrong word is answered with the one that was probably meant."""
    known = [str(word) for word in words]

    def check(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
        for word in given:
            if word not in known:
                near = difflib.get_close_matches(word, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}"
                raise click.UsageError(f"{option.opts[0]} is never {word} ({hint})", context)
        return given

    return check


def _moment(context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """A moment as people write it, in the store's own writing."""
    try:
        return None if text is None else model.utc(parse_when(text, times.now()))
    except ValueError as error:
        fact, _, hint = str(error).partition("; ")
        raise click.UsageError(f"{option.opts[-1]}: {fact} ({hint})", context) from None


as_json = click.option("--json", "as_json", is_flag=True, help="JSON instead of a table; nothing is cut or left out.")
limit = click.option("-n", "--limit", type=click.IntRange(min=1), metavar="N", help="At most so many.")
kinds = click.option(
    "--kind", "kinds", multiple=True, callback=one_of(model.Kind), metavar="KIND",
    help="Only events of this kind, such as user_msg, edit or error.",
)  # fmt: skip
_SPAN = (
    click.option("-S", "--since", callback=_moment, metavar="TIME", help='Since then: "2h", "today", "2025-03-01".'),
    click.option("-U", "--until", callback=_moment, metavar="TIME", help="Until then."),
)
_WHICH = (
    click.option("--agent", "agents", multiple=True, metavar="NAME", help="Only of this agent, such as claude."),
    click.option("--repo", "repos", multiple=True, metavar="PATH", help="Only of this repository; . is here."),
    click.option("--branch", "branches", multiple=True, metavar="NAME", help="Only on this git branch."),
    click.option("--model", "models", multiple=True, metavar="NAME", help="Only with this model, or part of its name."),
    click.option(
        "--outcome", "outcomes", multiple=True, callback=one_of(model.Outcome), metavar="WORD",
        help="Only those that ended so: success, fail, abandoned, unknown.",
    ),
)  # fmt: skip


def span(function: F) -> F:
    """`--since` and `--until`."""
    for option in reversed(_SPAN):
        function = option(function)
    return function


def which(function: F) -> F:
    """`--agent --repo --branch --model --outcome`: each may be repeated, and means OR then."""
    for option in reversed(_WHICH):
        function = option(function)
    return function


def wanted(db: apsw.Connection, given: dict[str, Any], **more: Any) -> reader.Wanted:
    """What `which` was given, as the reader takes it."""
    for agent in given["agents"]:
        _check_agent(agent)
    known = glance.models(db) if given["models"] else ()
    models = [name for name in known for part in given["models"] if part.lower() in name.lower()]
    return reader.Wanted(
        agents=given["agents"],
        repos=[_repo(each) for each in given["repos"]],
        branches=given["branches"],
        models=models or given["models"],
        outcomes=given["outcomes"],
        **more,
    )


def _check_agent(name: str) -> None:
    if name not in model.FLAVORS:  # not in the store yet: it may be an agent nevertheless
        adapters.register_flavors()
    if name not in model.FLAVORS:
        near = difflib.get_close_matches(name, model.FLAVORS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(model.FLAVORS))}"
        raise UsageError(f"there is no agent {name}", hint=hint)


def is_any(given: dict[str, Any]) -> bool:
    return any(given[name] for name in ("agents", "repos", "branches", "models", "outcomes"))


def _repo(text: str) -> str:
    """`.` and paths are looked up on this disk; a bare name stays one, and matches the last part."""
    if "/" not in text and text not in (".", "..", "~"):
        return text
    path = os.path.abspath(paths.expand(text, paths.environment()))
    return find_repo(path) if os.path.isdir(path) else path


def here() -> str:
    try:
        return find_repo(os.getcwd())
    except FileNotFoundError:
        raise SessiondError("the folder you are in does not exist any more", hint="cd to one that does") from None


def chosen(answer: Answer, text: str | None) -> str:
    """The uid that is meant: by its beginning, or, without one, the newest session of this repository."""
    if text is not None:
        return reader.resolve_uid(answer.db, text)
    repo = here()
    uid = reader.newest_in(answer.db, repo)
    if uid is None:
        raise SessiondError(f"there is no session of {repo}", hint="name one: sessiond sessions lists them")
    return uid
