"""`sessiond search`: where was this said, done or gone wrong before?"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from sessiond.cli import freshness, options, terminal, times
from sessiond.cli.answer import answering
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.cli.sessions import repo_name
from sessiond.errors import SessiondError
from sessiond.serve.client import Client
from sessiond.store import find, glance, reader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sessiond.cli.answer import Answer
    from sessiond.cli.terminal import Terminal
    from sessiond.model import Session, SessionEvent
    from sessiond.store.find import Hit

SHOWN = 20


@click.command(
    "search",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(
        ('sessiond search "connection refused"', "both words, anywhere"),
        ("sessiond search '\"connection refused\"'", "exactly this phrase"),
        ("sessiond search 'migrat*' --repo . --kind edit", "words that begin so, in edits made here"),
        ("sessiond search timeout -S 7d --json", "for a script"),
    ),
)
@click.argument("query", nargs=-1, required=True)
@options.which
@options.kinds
@options.span
@options.limit
@options.as_json
@click.pass_obj
def command(
    config_file: Path | None, /, query: tuple[str, ...], limit: int | None, as_json: bool, **given: Any
) -> None:
    """Find words in everything that was said and done; the best 20 hits unless -n says otherwise.

    All words must occur. "A phrase" in quotes is one; a word may end in * (three letters or more).
    """
    with answering(config_file) as answer:
        hits, notice = _find(answer, " ".join(query), limit if as_json else limit or SHOWN, given)
        titled = {uid: reader.session(answer.db, uid) for uid in dict.fromkeys(hit.session_uid for hit in hits)}
        if as_json:
            answer.print_json([_object(hit, titled[hit.session_uid]) for hit in hits])
        elif hits:
            _print(answer, terminal.stdout(), hits, titled)
        elif notice is None:
            terminal.say_note("nothing found")
        if notice is not None:
            terminal.say_note(notice)


def _find(answer: Answer, query: str, limit: int | None, given: dict[str, Any]) -> tuple[list[Hit], str | None]:
    """Events first; then sessions of which only the digest is left. And what must be said where the index is not whole:
    a query is answered all the same.
    """
    uids = _chosen(answer, given)
    mask = answer.masker.mask
    with find.Index(answer.paths.search) as index:
        accept = _filter(given, uids)
        hits = index.ask(lambda db: find.find(answer.db, db, query, limit=limit, accept=accept, mask=mask))
        left = None if limit is None else limit - len(hits)
        if not given["kinds"] and left != 0:
            told = {hit.session_uid for hit in hits}
            is_wanted = _session_filter(answer, given, uids)
            is_new: Callable[[str], bool] = lambda uid: uid not in told and is_wanted(uid)  # noqa: E731
            hits += index.ask(lambda db: find.find_evicted(answer.db, db, query, limit=left, accept=is_new, mask=mask))
    if index.is_damaged:  # the daemon may be the last to know
        with suppress(SessiondError):
            Client(answer.paths.socket, freshness.PATIENCE_SECONDS).call("check_index")
    return hits, index.notice


def _chosen(answer: Answer, given: dict[str, Any]) -> set[str] | None:
    if not options.is_any(given):
        return None
    wanted = options.wanted(answer.db, given, everything=True)
    return {session.session_uid for session in reader.sessions(answer.db, wanted)}


def _session_filter(answer: Answer, given: dict[str, Any], uids: set[str] | None) -> Callable[[str], bool]:
    """Of a digest only the session's own times are known."""

    def accept(uid: str) -> bool:
        if uids is not None and uid not in uids:
            return False
        session = reader.session(answer.db, uid)
        since, until = given["since"], given["until"]
        return (since is None or (session.ended_at or "") >= since) and (
            until is None or (session.started_at or "~") < until
        )

    return accept


def _filter(given: dict[str, Any], uids: set[str] | None) -> Callable[[SessionEvent], bool]:
    kinds, since, until = set(given["kinds"]), given["since"] or "", given["until"] or "~"
    is_timed = given["since"] is not None or given["until"] is not None

    def accept(event: SessionEvent) -> bool:
        if is_timed and (event.ts is None or not since <= event.ts < until):
            return False
        return (not kinds or event.kind.value in kinds) and (uids is None or event.session_uid in uids)

    return accept


def _object(hit: Hit, session: Session) -> dict[str, Any]:
    """A hit in a digest has no event: its kind is "digest", its seq is null, and its id is the session's."""
    of_digest = {"session_uid": hit.session_uid, "seq": None, "kind": "digest", "ts": session.last_event_at}
    return {
        **(hit.event.to_dict() if hit.event is not None else of_digest),
        "id": hit.session_uid if hit.event is None else f"{hit.session_uid}#{hit.event.seq}",
        "title": session.title,
        "repo": session.repo,
        "flavor": session.flavor,
        "snippet": hit.snippet,
        "marks": [list(mark) for mark in hit.marks],
    }


def _print(answer: Answer, to: Terminal, hits: list[Hit], titled: dict[str, Session]) -> None:
    """By session, in the order of each one's best hit."""
    names = glance.short_names(answer.db, list(titled)) if to.is_screen else {}
    for number, (uid, session) in enumerate(titled.items()):
        if number:
            to.line()
        to.line(_headline(answer, to, session))
        for hit in hits:
            if hit.session_uid == uid:
                to.line(_hit_line(to, hit, session, names.get(uid, uid)))


def _headline(answer: Answer, to: Terminal, session: Session) -> str:
    when = times.when(session.last_event_at, times.now(), absolute=not to.is_screen)
    about = " · ".join(part for part in (session.flavor, answer.words(repo_name(session)), when) if part)
    title = to.fit(answer.words(session.title) or "(no title)", len(about) + 2)
    return f"{to.style(title, 'bold')}  {to.style(about, 'dim')}"


def _hit_line(to: Terminal, hit: Hit, session: Session, name: str) -> str:
    place = terminal.plain(name) + (" (digest)" if hit.event is None else f"#{hit.event.seq}")
    ts = session.last_event_at if hit.event is None else hit.event.ts
    age = times.when(ts, times.now(), absolute=not to.is_screen)
    head = f"  {to.style(place, 'cyan')}  {to.style(age, 'dim')}  "
    used = terminal.width_of(place) + len(age) + 6
    return head + _marked(to, hit, None if to.width is None else max(20, to.width - used))


def _marked(to: Terminal, hit: Hit, width: int | None) -> str:
    """The snippet with its matches marked; on a narrow screen the part around the first of them."""
    text, marks = hit.snippet, hit.marks
    start = 0
    if width is not None and marks and marks[0][1] > width - 4:
        start = max(0, marks[0][0] - width // 3)
    pieces: list[tuple[str, bool]] = [("…", False)] if start else []
    at = start
    for begin, end in marks:
        if end <= at:
            continue
        pieces += [(text[at : max(at, begin)], False), (text[max(at, begin) : end], True)]
        at = end
    pieces.append((text[at:], False))
    return _cut_pieces(to, pieces, width)


def _cut_pieces(to: Terminal, pieces: list[tuple[str, bool]], width: int | None) -> str:
    shown, left = [], width
    for raw, is_match in pieces:
        text = terminal.plain(raw)
        is_too_long = left is not None and terminal.width_of(text) > left
        if left is not None:
            text = terminal.cut(text, left)
            left -= terminal.width_of(text)
        shown.append(to.style(text, "mark") if is_match else text)
        if is_too_long:
            break
    return "".join(shown)
