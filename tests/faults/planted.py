"""Made-up keys, a different one for every place in an agent's file, so that a leak says where it came from.

Put together here from pieces, so that no scanner takes this file for a leak.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import grok_files as grok
from lab import user_line

if TYPE_CHECKING:
    from lab import Lab

WINDOW = 10  # so many characters in a row of a key are a leak: a cut must not leave half of one

# What stands around the secret part, by kind. Those without blanks may stand in a path or a branch.
TOKENS: list[Callable[[str], str]] = [
    lambda part: "ghp_" + part[:36],
    lambda part: "sk-ant-api03-" + part[:60],
    lambda part: "glpat-" + part[:20],
    lambda part: "xai-" + part[:64],
    lambda part: "hf_" + part[:34],
]
PHRASES: list[Callable[[str], str]] = [
    lambda part: f"DB_PASSWORD={part[:24]}",
    lambda part: f"curl -H 'Authorization: Bearer {part[:40]}' https://x.test",
    lambda part: f"postgres://app:{part[:24]}@db.test/shop",
    lambda part: '{"client_secret": "' + part[:32] + '"}',
    lambda part: f"-----BEGIN RSA PRIVATE KEY-----\n{part[:64]}\n{part[:32]}\n-----END RSA PRIVATE KEY-----",
]


class Keys:
    """`token("the branch")` and `phrase("the prompt")` give text with a key in it; `leaks` finds them again."""

    def __init__(self) -> None:
        self.parts: dict[str, str] = {}

    def token(self, place: str) -> str:
        return TOKENS[len(self.parts) % len(TOKENS)](self._part(place))

    def phrase(self, place: str) -> str:
        kinds = TOKENS + PHRASES
        return kinds[len(self.parts) % len(kinds)](self._part(place))

    def _part(self, place: str) -> str:
        assert place not in self.parts
        digest = hashlib.sha512(place.encode()).digest()
        part = base64.b64encode(digest, altchars=b"q7").decode()[:80]
        self.parts[place] = part
        return part

    def leaks(self, text: str | bytes) -> set[str]:
        """The places whose key, or a piece of it, stands in this text."""
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        return {place for place, part in self.parts.items() if any(piece in text for piece in _pieces(part))}


def _pieces(part: str) -> Iterator[str]:
    # A key is at least 20 characters long: whatever piece of WINDOW + 4 of it is left, one of these is in it.
    return (part[at : at + WINDOW] for at in range(0, len(part) - WINDOW, 4))


def plant(lab: Lab, keys: Keys) -> list[str]:
    """Files of three agents, with a key in every place where people or agents write. The uids of their sessions."""
    return [_claude(lab, keys), _codex(lab, keys), _grok(lab, keys)]


def _claude(lab: Lab, keys: Keys) -> str:
    cwd = f"/w/{keys.token('claude cwd')}/shop"
    branch = f"fix/{keys.token('claude branch')}"
    slug = f"-w-{keys.token('claude folder name')}-shop"
    path = lab.claude_file("s1", slug=slug)

    def record(number: int, **fields: object) -> bytes:
        return user_line(number, cwd=cwd, gitBranch=branch, **fields)

    def says(number: int, *blocks: dict, stop: str = "tool_use") -> bytes:
        model = f"opus-{keys.token('claude model')}" if number == 1 else "opus"
        message = {"id": f"m{number}", "role": "assistant", "model": model, "content": list(blocks)}
        usage = {"input_tokens": 10, "output_tokens": 5}
        return record(number, type="assistant", message={**message, "usage": usage, "stop_reason": stop})

    def use(call: str, name: str, **given: object) -> dict:
        return {"type": "tool_use", "id": call, "name": name, "input": given}

    def result(number: int, call: str, text: str, *, is_error: bool = False) -> bytes:
        block = {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": is_error}
        return record(number, message={"role": "user", "content": [block]})

    failed = f"ConnectionError: no route for {keys.phrase('claude error')}\nTraceback: refused"
    lines = [
        record(0, text=f"please use {keys.phrase('claude prompt')} for it"),
        says(1, use("c1", "Bash", command=f"deploy --token {keys.token('claude command')}", description="go")),
        result(2, "c1", failed, is_error=True),
        says(3, use("c2", "Edit", file_path=f"{cwd}/{keys.token('claude file')}.py", old_string="a", new_string="b")),
        result(4, "c2", f"wrote {keys.phrase('claude result')}"),
        says(5, use("c3", "Bash", command=f"pytest -k {keys.token('claude test command')}")),
        result(6, "c3", f"1 failed\n{keys.phrase('claude test result')}\n1 failed in 2 s", is_error=True),
        says(7, use("c4", f"mcp__{keys.token('claude tool')}", query="x")),
        result(8, "c4", "ok"),
        says(9, {"type": "thinking", "thinking": f"hm {keys.phrase('claude thought')}"}),
        says(10, {"type": "text", "text": f"I wrote {keys.phrase('claude answer')}."}, stop="end_turn"),
        record(11, text="x" * 190 + " " + keys.token("claude prompt at the cut") + " y" * 900),
        _line({"type": "custom-title", "customTitle": f"about {keys.phrase('claude title')}", "sessionId": "s1"}),
        _line({"type": f"news-{keys.token('claude unknown type')}", "sessionId": "s1"}),
        b'{"broken ' + keys.token("claude rejected line").encode() + b"\n",
        b'{"half ' + keys.token("claude unfinished line").encode(),
    ]
    path.write_bytes(b"".join(lines))
    return "claude:s1"


def _codex(lab: Lab, keys: Keys) -> str:
    uid = "019e0000-0000-7000-8000-000000000001"
    at = iter(range(100))

    def line(kind: str, **payload: object) -> bytes:
        return _line({"timestamp": f"2026-05-01T10:00:{next(at):02d}.000Z", "type": kind, "payload": payload})

    def item(kind: str, **payload: object) -> bytes:
        return line("response_item", type=kind, **payload)

    git = {
        "branch": f"wip-{keys.token('codex branch')}",
        "repository_url": f"https://me:{keys.token('codex url')}@x.test/r",
    }
    prompt, patch = keys.phrase("codex prompt"), keys.token("codex file")
    lines = [
        line("session_meta", id=uid, cwd=f"/w/{keys.token('codex cwd')}", cli_version="0.125.0", git=git),
        item("message", role="user", content=[{"type": "input_text", "text": f"take {prompt}"}]),
        line("event_msg", type="user_message", message=f"take {prompt}"),
        item("function_call", name="exec_command", call_id="c1",
             arguments=json.dumps({"cmd": f"mysql -p{keys.token('codex command')} -e x"})),
        item("function_call_output", call_id="c1", output=f"ERROR 1045: {keys.phrase('codex error')}\nexit code 1"),
        line("event_msg", type="exec_command_end", call_id="c1", exit_code=1, status="failed"),
        item("custom_tool_call", status="completed", call_id="c2", name="apply_patch",
             input=f"*** Begin Patch\n*** Update File: src/{patch}.rs\n@@\n-1\n+2\n*** End Patch\n"),
        item("custom_tool_call_output", call_id="c2", output=f"Success {keys.phrase('codex result')}"),
        line("event_msg", type="error", message=f"stream failed: {keys.phrase('codex api error')}"),
        line("event_msg", type="agent_message", message=f"done {keys.phrase('codex answer')}"),
        line("event_msg", type="thread_name_updated", thread_id=uid, thread_name=f"on {keys.phrase('codex title')}"),
        line(f"new_{keys.token('codex unknown type')}", x=1),
    ]  # fmt: skip
    lab.codex_file(f"rollout-2026-05-01T10-00-00-{uid}").write_bytes(b"".join(lines))
    return f"codex:{uid}"


def _grok(lab: Lab, keys: Keys) -> str:
    cwd = f"/w/{keys.token('grok cwd')}"
    folder = grok.folder(lab, group=cwd.replace("/", "%2F"))
    shell = {"x.ai/tool": {"name": "run_terminal_command", "kind": "execute"}}
    lines = [
        grok.prompt(f"with {keys.phrase('grok prompt')} please", 1),
        grok.update("tool_call", 2, toolCallId="c1", _meta=shell, rawInput={"command": f"x {keys.phrase('grok command')}"}),
        grok.update("tool_call_update", 3, toolCallId="c1", status="failed",
                    content=[{"type": "content", "content": {"type": "text", "text": f"boom {keys.phrase('grok error')}"}}]),
        grok.update("tool_call", 4, toolCallId="c2", _meta={"x.ai/tool": {"name": "write", "kind": "edit"}},
                    rawInput={"file_path": f"/w/{keys.token('grok file')}", "content": keys.phrase("grok content")}),
        grok.result(5, "c2"),
        grok.answer(f"said {keys.phrase('grok answer')}", 6),
        grok.turn(7, spent=10),
    ]  # fmt: skip
    (folder / "updates.jsonl").write_bytes(b"".join(lines))
    title, branch = keys.phrase("grok title"), keys.token("grok branch")
    (folder / "summary.json").write_text(
        grok.summary(cwd=cwd, generated_title=f"of {title}", session_summary=f"of {title}", head_branch=f"b/{branch}")
    )
    return f"grok:{grok.PARENT}"


def _line(record: dict) -> bytes:
    return json.dumps(record).encode() + b"\n"
