"""Sessions with a digest of any content: real files taken in by the real pipeline, and the digest saved as a pass does."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from lab import Lab, user_line
from sessiond.model import utc
from sessiond.passes.fingerprint import fingerprint
from sessiond.store import connect, digests
from sessiond.store.digests import Distilled

NOW = datetime.now(UTC)
MISSING = "ModuleNotFoundError: No module named 'requests'"


def days_ago(days: float) -> str:
    return utc(NOW - timedelta(days=days))


def snippet(text: str = MISSING, *, at: str | None = None, count: int = 1, tool: str | None = "Bash", first: int = 2,
            last: int | None = None, then: str | None = None, gone: list[dict] | None = None) -> dict:  # fmt: skip
    """An error as a digest holds it. `gone`: what was done until it was gone."""
    last = first if last is None else last
    return {
        "fingerprint": fingerprint(text).id, "sample": text, "count": count, "tool": tool, "first_seq": first,
        "last_seq": last, "first_at": at, "last_at": at,
        "followed_by": None if then is None else did(then, seq=last + 1),
        "recovered_by": None if gone is None else {"seq": last + 9, "actions": gone},
    }  # fmt: skip


def did(summary: str, kind: str = "tool_call", seq: int = 5) -> dict:
    return {"seq": seq, "kind": kind, "tool": "Edit" if kind == "edit" else "Bash", "summary": summary}


def signal(name: str, *seqs: int, detail: str = "so it was", about: str | None = None) -> dict:
    return {"signal": name, "seqs": list(seqs), "detail": detail, "fingerprint": about and fingerprint(about).id}


class Corpus:
    """`corpus.add("s1", ...)` as often as needed, then `corpus.save()`."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._digests: dict[str, dict] = {}

    def add(self, name: str, *snippets: dict, agent: str = "claude", repo: str = "/w/shop", days: float = 1.0,
            tokens: int = 0, signals: tuple[dict, ...] = ()) -> str:  # fmt: skip
        at = days_ago(days)
        getattr(self, f"_write_{agent}")(name, repo, at, tokens)
        snippets = tuple({**each, "first_at": each["first_at"] or at, "last_at": each["last_at"] or at}
                         for each in snippets)  # fmt: skip
        uid = f"{agent}:{name}"
        self._digests[uid] = {"error_snippets": list(snippets), "signals": list(signals), "title": name}
        return uid

    def _write_claude(self, name: str, repo: str, at: str, tokens: int) -> None:
        lines = [user_line(0, f"prompt of {name}", session=name, cwd=repo, timestamp=at)]
        if tokens:
            usage = {"input_tokens": tokens, "output_tokens": 0}
            message = {"id": f"{name}-m", "role": "assistant", "model": "opus", "usage": usage,
                       "content": [{"type": "text", "text": "done"}]}  # fmt: skip
            lines.append(user_line(1, session=name, cwd=repo, timestamp=at, type="assistant", message=message))
        self.lab.claude_file(name).write_bytes(b"".join(lines))

    def _write_codex(self, name: str, repo: str, at: str, _tokens: int) -> None:
        meta = {"id": name, "cwd": repo, "cli_version": "0.125.0"}
        said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"prompt of {name}"}]}
        records = [("session_meta", meta), ("response_item", said)]
        lines = [json.dumps({"timestamp": at, "type": kind, "payload": payload}) for kind, payload in records]
        self.lab.codex_file(f"rollout-2026-01-02T03-04-05-{name}").write_text("\n".join(lines) + "\n")

    def save(self) -> None:
        self.lab.ingest()
        db = connect.open_writer(self.lab.paths.store)
        try:
            with connect.transaction(db):
                for uid, digest in self._digests.items():
                    save_digest(db, uid, digest)
        finally:
            db.close()


def save_digest(db, uid: str, digest: dict, outcome: str = "unknown") -> None:
    row = connect.value(db, "SELECT id FROM _session WHERE uid = ?", (uid,))
    due = digests.one(db, row)
    distilled = Distilled(due, digest, outcome, None, None, None, has_new_errors=True)
    assert digests.save(db, distilled, utc(NOW))
