"""`sessiond verify`: is what was kept what the agents' files say, and does the store hold together?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from sessiond.cli import terminal, times
from sessiond.cli.answer import answering
from sessiond.cli.group import SETTINGS, Command, examples
from sessiond.intake import verify as files
from sessiond.store import reader, verify as store
from sessiond.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from sessiond.cli.answer import Answer
    from sessiond.store.verify import Finding

DRAW_SECONDS = 0.1


@click.command(
    "verify",
    cls=Command,
    context_settings=SETTINGS,
    epilog=examples(
        ("sessiond verify", "everything that is kept"),
        ("sessiond verify 3f2a", "one session"),
        ("sessiond verify --json | jq '.problems[].path'", "for a script; exits with 1 if anything differs"),
    ),
)
@click.argument("uids", nargs=-1, metavar="[UID]...")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def command(config_file: Path | None, /, uids: tuple[str, ...], as_json: bool) -> None:
    """Compare what was kept with the agents' files that are still there, byte for byte, as far as they were taken in;
    and check that the archive has no holes, that every event's record is in it, and that both databases are sound.

    Reads only: nothing is written or mended. Exits with 1 if anything is not as it should be.
    """
    with answering(config_file) as answer:
        wanted = [reader.resolve_uid(answer.db, uid) for uid in uids] or None
        look = _Look(answer, terminal.stderr())
        try:
            findings = [_masked(answer, each) for each in look.findings(wanted)]
        finally:
            look.progress.clear()
        problems = [each for each in findings if each.is_problem]
        notes = [each for each in findings if not each.is_problem]
        if as_json:
            counted = {"sessions": look.sessions, "files": look.files, "bytes": look.compared}
            told = {"problems": [_told(each) for each in problems], "notes": [_told(each) for each in notes]}
            answer.print_object({**counted, **told, "ok": not problems})
        else:
            _print(look, problems, notes)
    if problems:
        raise click.exceptions.Exit(1)


class _Look:
    """Goes through the sessions, and counts."""

    def __init__(self, answer: Answer, to: terminal.Terminal) -> None:
        self._answer = answer
        self.progress = _Progress(to)
        self.sessions = self.files = self.compared = 0

    def findings(self, uids: Sequence[str] | None) -> Iterator[Finding]:
        db = self._answer.db
        chosen = store.sessions(db, uids)
        for row, uid in chosen:
            self.progress.begin(f"{self.sessions:,} of {times.count(len(chosen), 'session')}")
            yield from store.frames(db, row, uid)
            yield from store.events(db, row, uid)
            yield from store.readable(db, row, uid, self.progress.read)
            for _, compared in files.session(db, row, uid, self.progress.read):
                self.files += compared.bytes > 0
                self.compared += compared.bytes
                yield from compared.findings
            self.sessions += 1
        if uids is None:
            for path in (self._answer.paths.store, self._answer.paths.search):
                self.progress.begin(f"checking {path.name}")
                yield from store.database(path)


def _masked(answer: Answer, finding: Finding) -> Finding:
    return finding._replace(path=None if finding.path is None else answer.masker.mask(finding.path))


def _told(finding: Finding) -> dict[str, Any]:
    return {
        "session_uid": finding.uid,
        "path": finding.path,
        "offset": finding.offset,
        "what": finding.what,
        "fix": finding.fix,
    }


def _print(look: _Look, problems: Sequence[Finding], notes: Sequence[Finding]) -> None:
    to = terminal.stdout()
    for finding in (*problems, *notes):
        colour = "red" if finding.is_problem else "yellow"
        sign = to.glyph("✗", "x") if finding.is_problem else to.glyph("·", "-")
        at = f" at byte {finding.offset:,}" if finding.offset is not None else ""
        to.line(f"{to.style(sign, colour)} {terminal.shown_path(finding.path)}{at}: {terminal.plain(finding.what)}")
        about = f"{finding.uid}  " if finding.uid else ""
        to.line("  " + to.style(f"{terminal.plain(about)}{terminal.plain(finding.fix)}", "dim"))
    compared = f"{times.count(look.files, 'file')} compared, {format_size(look.compared)}"
    if not look.files:
        compared = "no file compared" + (" (evicted, or the files are gone)" if look.sessions else "")
    verdict = times.count(len(problems), "problem") if problems else "all as it should be"
    to.line(f"{times.count(look.sessions, 'session')}, {compared}: {verdict}")


class _Progress:
    """One line that is drawn over and over on a terminal; nothing anywhere else."""

    def __init__(self, to: terminal.Terminal) -> None:
        self._to = to
        self._words = ""
        self._bytes = 0
        self._drawn_at = time.monotonic()  # what is quickly done needs no line
        self._is_drawn = False

    def begin(self, words: str) -> None:
        self._words = words
        self.read(0)

    def read(self, size: int) -> None:
        self._bytes += size
        now = time.monotonic()
        if self._to.is_screen and now - self._drawn_at >= DRAW_SECONDS:
            self._drawn_at, self._is_drawn = now, True
            self._write("\r\x1b[K" + self._to.fit(f"{self._words}, {format_size(self._bytes)} read", 0))

    def clear(self) -> None:
        if self._is_drawn:
            self._write("\r\x1b[K")
            self._is_drawn = False

    def _write(self, text: str) -> None:
        self._to.stream.write(text)
        self._to.stream.flush()
