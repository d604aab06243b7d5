"""User records: what a person said, and the much larger rest that is only written in their name.

Tool results, reminders, command output, notifications, compaction summaries and a sub-agent's task all come
as `user` records. Only a prompt by a person is a turn, and a record is one turn however many blocks it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sessiond.adapters._claude_envelope import NAME_LIMIT, Envelope, Json, mapping, string
from sessiond.adapters._claude_results import INTERRUPTED, agent_links, parse_result, result_text
from sessiond.adapters.wording import clip, media_note, one_line
from sessiond.model import Kind, Role, Unknown

if TYPE_CHECKING:
    from sessiond.model import Event, Record

_OUTPUT_TAGS = (
    *("<local-command-", "<bash-stdout", "<bash-stderr", "<task-notification", "<system-reminder", "<ide_"),
    *("<user-prompt-submit-hook", "<session-start-hook", "<post-tool-use-hook", "<new-diagnostics"),
    "Caveat: The messages below",
)
_AGENT_TAGS = ("<teammate-message", "<agent-message", "<peer-message", "<cross-session-message")
_CONTINUED = "This session is being continued from a previous conversation"
_ENVELOPES = ("<", "[", "Caveat: ", _CONTINUED)

# Commands that the client carries out by itself: nothing is asked of the model.
_LOCAL_COMMANDS = frozenset(
    {
        *(
            "/clear",
            "/compact",
            "/exit",
            "/quit",
            "/model",
            "/resume",
            "/continue",
            "/rewind",
            "/branch",
            "/fork",
        ),
        *("/ide", "/config", "/cost", "/usage", "/stats", "/status", "/help", "/login", "/logout", "/mcp"),
        *("/hooks", "/permissions", "/agents", "/memory", "/theme", "/vim", "/doctor", "/context", "/export"),
        *(
            "/rename",
            "/copy",
            "/add-dir",
            "/plugin",
            "/release-notes",
            "/statusline",
            "/terminal-setup",
            "/fast",
        ),
        *(
            "/effort",
            "/color",
            "/output-style",
            "/tasks",
            "/bashes",
            "/todos",
            "/upgrade",
            "/feedback",
            "/bug",
        ),
        *("/keybindings", "/sandbox"),
    }
)


class Words(NamedTuple):
    """What a text in a user's name is."""

    kind: Kind
    role: Role
    summary: str
    text: str
    is_turn: bool = False
    tool: str | None = None


def parse_user(env: Envelope) -> list[Record]:
    content = mapping(env.record.get("message")).get("content")
    if isinstance(content, list):
        return _parse_blocks(env, content)
    if not isinstance(content, str):
        return env.links()
    return env.alone(_said(env, 0, words_of(env, content)))


def _parse_blocks(env: Envelope, blocks: list[Any]) -> list[Record]:
    results = sum(1 for block in blocks if mapping(block).get("type") == "tool_result")
    said = [_block_words(env, block, beside_result=results > 0) for block in blocks]
    turn_at = _turn_block(blocks, said)
    records: list[Record] = []
    last: Event | None = None
    for at, (block, words) in enumerate(zip(blocks, said, strict=True)):
        if words is not None:
            last = _said(env, at, words._replace(is_turn=at == turn_at))
            records.append(last)
        elif (name := mapping(block).get("type")) == "tool_result":
            last = parse_result(env, at, block)
            records += [last, *(agent_links(env, block) if results == 1 else ())]
        elif isinstance(name, str) and name not in ("", "text"):
            records.append(Unknown(f"user/{name[:NAME_LIMIT]}"))
    return records + env.links(last)


def _turn_block(blocks: list[Any], said: list[Words | None]) -> int | None:
    """The one block that stands for the turn: the first text by a person, else the first image."""
    turns = [at for at, words in enumerate(said) if words is not None and words.is_turn]
    texts = [at for at in turns if isinstance(blocks[at], str) or blocks[at].get("type") == "text"]
    return next(iter(texts or turns), None)


def _said(env: Envelope, block: int, words: Words) -> Event:
    return env.event(
        words.kind,
        block,
        role=words.role,
        summary=words.summary,
        text=words.text,
        tool=words.tool,
        is_turn=words.is_turn,
    )


def _block_words(env: Envelope, block: Any, *, beside_result: bool) -> Words | None:
    if isinstance(block, str):
        return words_of(env, block, beside_result=beside_result)
    name = mapping(block).get("type")
    if name == "text" and isinstance(block.get("text"), str):
        return words_of(env, block["text"], beside_result=beside_result)
    if name in ("image", "document"):
        return words_of(env, media_note(block), beside_result=beside_result)._replace(text="")
    return None


def words_of(env: Envelope, text: str, *, beside_result: bool = False) -> Words:
    """What a text is, by its record's flags first and the envelope it comes in second."""
    record = env.record
    if record.get("isCompactSummary") is True or record.get("isVisibleInTranscriptOnly") is True:
        return _compact_summary(text)
    head = text[:200].lstrip()
    if head.startswith(_ENVELOPES):
        if head.startswith(INTERRUPTED):
            return Words(Kind.HUMAN_INTERVENTION, Role.USER, one_line(text), clip(text))
        if head.startswith(_CONTINUED):
            return _compact_summary(text)
        if record.get("isMeta") is not True and (words := _unwrapped(env, head, text)) is not None:
            return words
    if record.get("isMeta") is True or beside_result:
        return Words(Kind.LIFECYCLE, Role.SYSTEM, one_line(text), clip(text))
    return _prompt(env, text)


def _compact_summary(text: str) -> Words:
    return Words(Kind.LIFECYCLE, Role.SYSTEM, "compact summary", clip(text))


def _prompt(env: Envelope, text: str, *, tool: str | None = None) -> Words:
    writer = _writer(env.record)
    if writer in ("task-notification", "system"):
        return Words(Kind.LIFECYCLE, Role.SYSTEM, one_line(text), clip(text))
    is_person = writer == "human" and not env.is_sidechain
    role = Role.USER if is_person else Role.AGENT
    return Words(Kind.USER_MSG, role, one_line(text), clip(text), is_person and not text.isspace(), tool)


def _writer(record: Json) -> str:
    """Who wrote it: `human` unless the record says otherwise, as all do only since 2.1.2xx."""
    kind = mapping(record.get("origin")).get("kind")
    if isinstance(kind, str):
        return kind
    return "system" if record.get("promptSource") == "system" else "human"


def _unwrapped(env: Envelope, head: str, text: str) -> Words | None:
    """What an envelope holds; None where the text only begins like one."""
    if head.startswith("<command-") and "<command-name>" in text[:4_000]:
        return _command(env, text)
    if head.startswith("<bash-input>"):
        command = _between(text, "<bash-input>", "</bash-input>")
        return Words(Kind.HUMAN_INTERVENTION, Role.USER, one_line(f"! {command}"), clip(command))
    if head.startswith(_OUTPUT_TAGS):
        return Words(Kind.LIFECYCLE, Role.SYSTEM, _output_summary(text), clip(text))
    if head.startswith(_AGENT_TAGS):
        return Words(Kind.USER_MSG, Role.AGENT, _output_summary(text), clip(text))
    return None


def _command(env: Envelope, text: str) -> Words:
    name = "/" + one_line(_between(text, "<command-name>", "</command-name>")).lstrip("/")
    arguments = _between(text, "<command-args>", "</command-args>").strip()
    line = f"{name} {arguments}".rstrip()
    if name in _LOCAL_COMMANDS:
        return Words(Kind.LIFECYCLE, Role.USER, one_line(line), clip(line), tool=name)
    return _prompt(env, line, tool=name)


def _output_summary(text: str) -> str:
    """The words inside the outermost tag, or its own <summary> where it brings one."""
    head = text[:4_000].lstrip()
    summary = _between(head, "<summary>", "</summary>") if "<summary>" in head else ""
    if summary or not head.startswith("<"):
        return one_line(summary or head)
    inside = head.partition(">")[2].rpartition("</")[0] or head.partition(">")[2]
    return one_line(inside) or one_line(head)


def _between(text: str, opening: str, closing: str) -> str:
    begin = text.find(opening)
    if begin < 0:
        return ""
    begin += len(opening)
    end = text.find(closing, begin)
    return text[begin : end if end >= 0 else None]


def parse_queued_command(env: Envelope, attachment: Json) -> list[Record]:
    """A prompt typed while the agent worked; often the only place it is written."""
    prompt = attachment.get("prompt")
    text = prompt if isinstance(prompt, str) else result_text(prompt)
    mode = string(attachment.get("commandMode")) or "prompt"
    writer = _writer(attachment)
    words = words_of(env, text)
    if mode == "bash" and writer == "human":
        words = Words(Kind.HUMAN_INTERVENTION, Role.USER, one_line(f"! {text}"), clip(text))
    elif mode != "prompt" or writer != "human" or attachment.get("isMeta") is True:
        words = Words(Kind.LIFECYCLE, Role.SYSTEM, _output_summary(text), clip(text))
    return env.alone(_said(env, 0, words))
