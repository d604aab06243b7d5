"""`sessiond show`: one session on a page, and how to go on with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sessiond.cli import digest_page, errors_page, options, terminal, times
from sessiond.cli.answer import answering
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.cli.resume import resume_argv, resume_command
from sessiond.cli.sessions import OUTCOME_STYLES, tokens
from sessiond.store import digests, glance, reader
from sessiond.units import format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sessiond.cli.answer import Answer
    from sessiond.cli.terminal import Terminal
    from sessiond.model import Session

LABEL = 9
FILES_SHOWN = 8


@click.command(
    "show",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(
        ("sessiond show", "the newest session of this repository"),
        ("sessiond show 3f2a9c", "by the beginning of its id"),
        ("sessiond show claude:3f2a9c --json", "for a script"),
    ),
)
@click.argument("uid", required=False)
@options.as_json
@click.pass_obj
def command(config_file: Path | None, /, uid: str | None, as_json: bool) -> None:
    """One session: what it was about, where, how it ended, and how to go on with it.

    UID may be the beginning of one. Without it: the newest session of the repository you are in.
    """
    with answering(config_file) as answer:
        session = reader.session(answer.db, options.chosen(answer, uid))
        if as_json:
            answer.print_object(_object(answer, session))
        else:
            to = terminal.stdout()
            for line in _page(answer, to, session):
                to.line(line)


def _object(answer: Answer, session: Session) -> dict[str, Any]:
    uid = session.session_uid
    return {
        **session.to_dict(),
        "files": [{"path": path, "edits": edits} for path, edits in glance.files(answer.db, uid)],
        "kinds": glance.kinds(answer.db, uid),
        "errors": glance.errors(answer.db, uid),
        "digest": digests.by_uid(answer.db, uid),
        "resume": resume_argv(session),
    }


def _page(answer: Answer, to: Terminal, session: Session) -> Iterator[str]:
    yield to.style(to.fit(answer.words(session.title) or "(no title)", 0), "bold")
    yield to.style(session.session_uid if to.width is None else to.fit(terminal.plain(session.session_uid), 0), "cyan")
    yield ""
    digest = digests.by_uid(answer.db, session.session_uid)
    for label, text in _facts(answer, to, session, digest):
        yield _row(to, label, text)
    yield from _files(answer, to, session.session_uid)
    if digest is None:
        yield _row(to, "digest", "not yet; the next pass makes it, or now: sessiond analyze")
    else:
        for label, text in digest_page.rows(digest, to, answer.words):
            yield from _paragraph(to, label, text)
    said = list(_said(answer, session, digest))
    if said:
        yield ""
    for label, text in said:
        yield from _paragraph(to, label, text)
    resume = resume_command(session)
    if resume:
        yield ""
        # Never cut: it is there to be copied.
        yield to.style("resume: ", "dim") + answer.words(resume)


def _said(answer: Answer, session: Session, digest: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    if digest is not None:
        yield from digest_page.said(digest, answer.words)
        return
    prompt, reply = glance.last_words(answer.db, session.session_uid)
    for label, words in (("asked", prompt), ("answered", reply)):
        if words:
            yield label, answer.words(words)


def _row(to: Terminal, label: str, text: str) -> str:
    return to.style(terminal.pad(label, LABEL), "dim") + "  " + (text if "\x1b" in text else to.fit(text, LABEL + 2))


def _paragraph(to: Terminal, label: str, text: str) -> Iterator[str]:
    """A row that may take a second line: what helped stands at the end of it."""
    if "\x1b" in text:
        yield _row(to, label, text)
        return
    for number, line in enumerate(errors_page.wrapped(to, text, LABEL + 2)):
        yield _row(to, "" if number else label, line)


def _facts(answer: Answer, to: Terminal, session: Session, digest: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    words = answer.words
    agent = session.flavor + (f" · {words(session.model)}" if session.model else "")
    yield "agent", agent + (" · sub-agent" if session.is_sidechain else "")
    if session.repo or session.cwd:
        branch = f" · {words(session.git_branch)}" if session.git_branch else ""
        yield "repo", answer.path(session.repo or session.cwd) + branch
    if session.cwd and session.cwd != session.repo:
        yield "folder", answer.path(session.cwd)
    yield "when", _when(session, to)
    yield "outcome", _outcome(answer, to, session)
    yield "work", _work(session)
    # Of an evicted session the digest still knows them.
    counts = glance.kinds(answer.db, session.session_uid) or (digest or {}).get("kinds")
    if counts:
        told = f"{sum(counts.values()):,}: " + ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
        for number, line in enumerate(errors_page.wrapped(to, told, LABEL + 2)):
            yield "" if number else "events", line
    if session.parent_uid:
        yield "parent", words(session.parent_uid)
    if session.source_path:
        yield "file", _source(answer, session)
    marks = [session.state.value, *(["pinned"] if session.pinned else [])]
    if session.evicted_at:
        marks.append(f"its raw bytes were let go {times.when(session.evicted_at, times.now())}")
    yield "state", " · ".join(marks)


def _when(session: Session, to: Terminal) -> str:
    begun, ended = times.parse(session.started_at), times.parse(session.ended_at)
    if begun is None:
        return f"found {times.when(session.discovered_at, times.now(), absolute=not to.is_screen)}"
    text = times.local(begun)
    if ended is not None and ended > begun:
        is_same_day = times.local(begun)[:10] == times.local(ended)[:10]
        text += f" to {times.local(ended)[11 if is_same_day else 0 :]} ({format_duration(ended - begun)})"
    ago = times.when(session.ended_at or session.started_at, times.now())
    return text + (f" · {ago}" if to.is_screen and ago.endswith(("ago", "now")) else "")


def _outcome(answer: Answer, to: Terminal, session: Session) -> str:
    name = session.outcome.value
    why = answer.words(session.outcome_reason) or (f"by {session.outcome_basis}" if session.outcome_basis else "")
    return to.style(name, *OUTCOME_STYLES.get(name, ())) + (to.fit(f" · {why}", LABEL + 2 + len(name)) if why else "")


def _work(session: Session) -> str:
    cost = session.cost
    facts = []
    if cost.turns is not None:
        facts.append(times.count(cost.turns, "turn"))
    if cost.wall_clock_s:
        facts.append(f"{format_duration(cost.wall_clock_s)} at work")
    if tokens(session) is not None:
        parts = (("in", cost.input_tokens), ("out", cost.output_tokens), ("cached", cost.cache_tokens))
        told = ", ".join(f"{times.short_number(amount)} {name}" for name, amount in parts if amount is not None)
        facts.append(f"{times.short_number(tokens(session))} tokens ({told})")
    if cost.retries:
        facts.append(f"{cost.retries:,} retried")
    return " · ".join(facts) or "nothing counted"


def _source(answer: Answer, session: Session) -> str:
    where = answer.path(session.source_path)
    if session.source_gone_at:
        return (
            f"gone since {times.when(session.source_gone_at, times.now())}: {where} (sessiond restore writes it back)"
        )
    return where + (f" ({format_size(session.source_bytes)})" if session.source_bytes is not None else "")


def _files(answer: Answer, to: Terminal, uid: str) -> Iterator[str]:
    edited = glance.files(answer.db, uid)
    if not edited:
        return
    shown = edited[:FILES_SHOWN] if to.is_screen else edited
    for number, (path, edits) in enumerate(shown):
        times_edited = f" ({edits:,} edits)" if edits > 1 else ""
        name = answer.path(path) + times_edited
        yield _row(to, "edited" if number == 0 else "", name)
    if len(edited) > len(shown):
        yield _row(to, "", f"and {len(edited) - len(shown):,} more (--json lists all)")
