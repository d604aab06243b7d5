"""Row 78: what an agent's files hold, and what they are called, may have been written by an enemy.

Terminal sequences are shown and never obeyed, whatever verb shows them; queries are words, whatever they look like; and
JSON made to explode costs no more than its length. Patterns made to blow up: `test_redos`.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from lab import Lab, until, user_line
from sessiond.adapters import adapters
from sessiond.cli import main
from sessiond.intake.parse import Wording, parse
from sessiond.mask import Masker
from sessiond.model import START, Chunk, Line
from sessiond.store.connect import rows
from tests.faults.harm import harmful_in, on_a_terminal
from tests.mask.test_cost import slowness

MIB = 2**20
# A title, a cleared screen, hidden text, a bell, C1, text turned around, tags, a carriage return over what stands there.
EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[8mhid\x07\x9b31m\u202egnp\u2066\u200b\U000e0041\rgone\x08\x7f"
NAME = "e\x1b]0;owned\x07\x1b[2J\u202e\x9bm"
ERROR = f"Error: cannot open {EVIL} the gate"


def tool_use(number: int, name: str, given: dict) -> dict:
    return {"type": "tool_use", "id": f"c{number}", "name": name, "input": given}


def says(number: int, *blocks: dict, stop: str | None = None) -> bytes:
    usage = {"input_tokens": 10, "output_tokens": 5}
    message = {"id": f"m{number}", "role": "assistant", "model": f"model {EVIL}", "content": list(blocks)}
    return user_line(
        number, type="assistant", message={**message, "usage": usage, "stop_reason": stop}, cwd=f"/w/{EVIL}"
    )


def result(number: int, call: int, text: str, *, is_error: bool = False) -> bytes:
    block = {"type": "tool_result", "tool_use_id": f"c{call}", "content": text, "is_error": is_error}
    return user_line(number, cwd=f"/w/{EVIL}", message={"role": "user", "content": [block]})


def hostile_session(session: str) -> bytes:
    where = {"cwd": f"/w/{EVIL}", "gitBranch": f"b{EVIL}"}
    lines = [
        user_line(0, f"open the gate {EVIL}", **where),
        says(1, {"type": "thinking", "thinking": EVIL}, tool_use(1, f"Tool{EVIL}", {EVIL: EVIL})),
        result(2, 1, ERROR, is_error=True),
        says(3, tool_use(3, "Bash", {"command": f"pytest {EVIL}"})),
        result(4, 3, ERROR, is_error=True),
        says(5, tool_use(5, "Edit", {"file_path": f"/w/{EVIL}/a.py", "old_string": EVIL, "new_string": "b"})),
        result(6, 5, f"done {EVIL}"),
        says(7, {"type": "text", "text": f"The gate {EVIL} is open."}, stop="end_turn"),
        user_line(8, type=f"odd{EVIL}", subtype=EVIL),
        user_line(9, type="ai-title", aiTitle=f"Gate {EVIL}"),
    ]
    return b"".join(lines).replace(b'"s1"', json.dumps(session, ensure_ascii=False).encode())


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Several sessions with sequences in every text, in their names and in their folders' names; all distilled."""
    lab = Lab(tmp_path_factory.mktemp("h"))
    lab.env["PYTHONPATH"] = os.getcwd()
    for session in ("gate1", "gate2", NAME):
        data = hostile_session(session)
        lab.claude_file(session, slug=f"-w-{NAME}").write_bytes(data.replace(b"us1-", f"u{len(session)}-".encode()))
    lab.ingest()
    lab.analyze()
    return lab


READING = [
    ["sessions"],
    ["sessions", "--json"],
    ["sessions", "--all"],
    ["sessions", "--repo", EVIL],
    ["sessions", "--file", f"/w/{EVIL}/a.py"],
    ["show", "gate1"],
    ["show", "gate1", "--json"],
    ["show", NAME],
    ["show", f"no{EVIL}"],
    ["events", "gate1"],
    ["events", "gate1", "--json"],
    ["events", "gate1", "--payload"],
    ["events", "gate1", "--visible"],
    ["events", "gate1#3", "-C", "2"],
    ["search", "gate"],
    ["search", "gate", "--json"],
    ["search", EVIL],
    ["errors"],
    ["errors", "--json"],
    ["errors", ERROR],
    ["errors", ERROR, "--json"],
    ["errors", f"never seen {EVIL}"],
    ["patterns"],
    ["patterns", "--json"],
    *(["cost", "--by", by] for by in ("model", "repo", "session")),
    ["cost", "--by", "model", "--json"],
    ["verify"],
    ["verify", "--json"],
    ["evict", "--dry-run"],
    ["forget", "gate2", "--dry-run"],
    ["pin", "gate2"],
    ["exclude", "--list"],
    ["restore", "gate1", "--to", "{to}"],
    ["config", "show"],
    ["ingest"],
    ["health", "-v"],
    ["status"],
    [f"no{EVIL}"],
    ["sessions", "--agent", EVIL],
]


@pytest.mark.fault(78)
@pytest.mark.parametrize("words", READING, ids=lambda words: " ".join(words).encode("unicode_escape").decode()[:40])
def test_no_sequence_of_an_agents_file_reaches_the_terminal(hostile, tmp_path, words):
    shown = on_a_terminal(hostile.env, *(word.format(to=tmp_path / EVIL) if "{to}" in word else word for word in words))
    assert harmful_in(shown, is_live=words == ["ingest"]) == []
    assert "Traceback" not in shown
    assert shown.strip()


@pytest.mark.fault(78)
def test_no_sequence_reaches_the_terminal_through_the_daemon(lab):
    """Its own words: unknown types, files it cannot read, and the live screen of `run`."""
    lab.claude_file(NAME).write_bytes(hostile_session("gate1"))
    packed = lab.codex_file(f"rollout-2026-01-02T03-04-05-00000000-0000-0000-0000-000000000001{NAME}")
    packed.with_name(packed.name + ".zst").write_bytes(b"\x28\xb5\x2f\xfdgarbage")
    with lab.daemon():
        lab.ingest_through_daemon()
        until(lambda: lab.status()["degraded"])
        assert any("odd\x1b" in name for name in lab.status()["sources"]["unknown_types"])
        for words in (["status"], ["status", "--json"], ["health", "-v"], ["sessions"], ["search", "gate"]):
            shown = on_a_terminal(lab.env, *words)
            assert harmful_in(shown) == []
            assert shown.strip()
    log = (lab.folder / "daemon.log").read_text()
    assert harmful_in(log) == []


@pytest.mark.fault(78)
def test_the_live_screen_and_the_log_of_a_terminal_obey_nothing(lab):
    lab.claude_file(NAME).write_bytes(hostile_session("gate1"))
    packed = lab.codex_file(f"rollout-2026-01-02T03-04-05-00000000-0000-0000-0000-000000000001{NAME}")
    packed.with_name(packed.name + ".zst").write_bytes(b"\x28\xb5\x2f\xfdgarbage")
    stopping = threading.Thread(target=stop_when_degraded, args=(lab,))
    stopping.start()
    shown = on_a_terminal(lab.env, "run")
    stopping.join()
    assert "not readable" in shown
    assert harmful_in(shown, is_live=True) == []


def stop_when_degraded(lab) -> None:
    degraded = until(lambda: (told := lab.status()) and told["degraded"] and told)
    time.sleep(1.2)  # the screen is drawn twice a second
    os.kill(degraded["pid"], signal.SIGTERM)


QUERIES = [
    "'; DROP TABLE _event; --", '" OR 1=1 --', "') UNION SELECT path FROM _source --", "%", "_", "*", "a*", "***", "^a",
    "NEAR(a b, 2)", "NEAR", "AND", "a AND", "OR OR", "NOT a", "text:gate", "fts:gate", "{a b}: c", '"', '""', '"a', "(", ")",
    "a + b", "a - b", "-gate", "+gate", "gate\\", "\0", "a\0b", "\ud800", "\U0001f600", "x" * 5_000, "a " * 2_000, "$(reboot)",
    "`reboot`", "%s%s%n", "../../etc/passwd", "{0}", ":name", "?1", "@a", "\x1b[2J", "gate' || 'x", "0x41", "1e999", "NULL",
]  # fmt: skip


def names_in(lab) -> list[str]:
    with lab.store() as db:
        return [name for (name,) in rows(db, "SELECT name FROM sqlite_schema ORDER BY name")]


@pytest.mark.fault(78)
@pytest.mark.parametrize("verb", ["search", "sessions --repo", "sessions --branch", "sessions --model", "sessions --file",
                                  "show", "events", "errors", "cost --repo", "patterns --repo"])  # fmt: skip
def test_a_query_is_only_words_whatever_it_looks_like(hostile, sessiond_in, verb):
    before, found = names_in(hostile), sessiond_in(hostile, "sessions", "--json")[1]
    for query in QUERIES:
        code, out, err = sessiond_in(hostile, *verb.split(), query)
        assert code in (0, 1, 2), (query, code, err)
        assert "Traceback" not in err
        assert "SQL" not in err
        assert "search index" not in err  # nor is it taken for one that is damaged
        if verb.startswith(("sessions", "cost", "patterns")):
            assert "open the gate" not in out, query  # it matches nothing, so nothing is shown
    assert names_in(hostile) == before
    assert sessiond_in(hostile, "sessions", "--json")[1] == found


@pytest.fixture
def sessiond_in(monkeypatch, capfd):
    """A verb in this process, in a lab's environment: (exit code, stdout, stderr)."""

    def call(lab: Lab, *words: str) -> tuple[int, str, str]:
        for name, value in lab.env.items():
            monkeypatch.setenv(name, value)
        capfd.readouterr()
        return main(list(words)), *capfd.readouterr()

    return call


NAMES = [
    "a\nb", "a\rb", "-rf", "--help", "$(reboot)", "`reboot`", "a;b", "a'b", 'a"b', "a%sb", "a..b", "\u202etxt", "\udcff\udcfe",
    "\x1b[2J", " ", "~", "*", "a#1", "claude:x", "NUL", "x" * 200, "é" * 90, "{0}", "\\", "'; DROP TABLE _source; --",
]  # fmt: skip


@pytest.mark.fault(28)
@pytest.mark.fault(78)
def test_a_file_may_be_called_anything(lab, sessiond_in):
    """Each is one session, listed, shown, restored below the folder that was named, and nowhere else."""
    for number, name in enumerate(NAMES):
        lab.claude_file(name, slug=f"-w-{name}"[:200]).write_bytes(user_line(0, f"n{number}", session=f"f{number}"))
    assert lab.ingest()["complete"]
    lab.analyze()
    code, out, _ = sessiond_in(lab, "sessions", "--all", "--json")
    listed = json.loads(out)
    assert code == 0
    assert {each["title"] for each in listed} == {f"n{number}" for number in range(len(NAMES))}
    for number, each in enumerate(listed):
        to = lab.folder / f"back{number}"
        code, out, err = sessiond_in(lab, "restore", "--to", str(to), "--json", "--", each["session_uid"])
        assert code == 0, (each["session_uid"], err)
        (file,) = [path for path in to.rglob("*") if path.is_file()]
        assert json.loads(file.read_bytes())["message"]["content"] == each["title"]
        assert sessiond_in(lab, "events", "--json", "--", each["session_uid"])[0] == 0


def bombs(size: int) -> dict[str, bytes]:
    """JSON lines of about this many bytes that are dear to hold, to walk or to name."""
    deep = b'{"a":' * 900 + b"1" + b"}" * 900
    user = b'{"type":"user","uuid":"x","message":{"role":"user","content":'
    text = b'{"type":"text","text":"a"},'
    return {
        "deep": user + deep + b"}}",
        "wide": user + b"[" + b"[]," * (size // 3) + b"1]}}",
        "numbers": user + b"[" + b"0," * (size // 2) + b"1]}}",
        "keys": b'{"type":"user",' + b",".join(b'"%x":0' % number for number in range(size // 12)) + b"}",
        "the same key": b'{"type":"user",' + b'"k":{},' * (size // 7) + b'"uuid":"x"}',
        "a huge key": b'{"type":"user","' + b"k" * size + b'":1}',
        "a huge type": b'{"type":"' + b"t" * size + b'","uuid":"x"}',
        "a huge id": b'{"type":"user","message":{"role":"user","content":"x"},"uuid":"' + b"u" * size + b'"}',
        "escapes": user + b'"' + rb"\u0001" * (size // 6) + b'"}}',
        "emoji": user + b'"' + "💣".encode() * (size // 4) + b'"}}',
        "digits": b'{"type":"user","uuid":"x","n":' + b"9" * size + b"}",
        "blocks": b'{"type":"assistant","uuid":"x","message":{"id":"m","role":"assistant","content":['
        + text * (size // len(text)) + b"0]}}",
        "quotes": b'{"' * (size // 2),
        "backslashes": b'{"a":"' + b"\\" * size,
    }  # fmt: skip


def seconds_for(data: bytes, flavor: str) -> float:
    """What an adapter makes of a line, and what is made of its records before they are stored."""
    wording = Wording(Masker().mask)
    began = time.process_time()
    parse(adapters()[flavor], Chunk(0, data, [Line(0, data)], START, len(data), 0), {}, wording)
    return time.process_time() - began


@pytest.mark.fault(78)
@pytest.mark.parametrize("flavor", sorted(adapters()))
def test_a_json_bomb_costs_no_more_than_its_length(flavor):
    limit = 1.0 * slowness()
    for name, data in bombs(MIB // 2).items():
        assert seconds_for(data, flavor) < limit, name


@pytest.mark.long
@pytest.mark.fault(78)
def test_a_json_bomb_as_long_as_a_line_may_be_costs_no_more_than_its_length():
    limit = 10.0 * slowness()
    took = {(name, each): seconds_for(data, each) for name, data in bombs(7 * MIB).items() for each in adapters()}
    print("\nthe dearest:", *sorted(((f"{each:.2f} s", *of) for of, each in took.items()), reverse=True)[:5], sep="\n ")
    assert max(took.values()) < limit


def bombs_through_the_daemon(lab, size: int) -> float:
    """Peak memory of the real daemon, in MiB, after it took all of them in."""
    path = lab.claude_file()
    path.write_bytes(
        user_line(0, "before") + b"".join(bomb + b"\n" for bomb in bombs(size).values()) + user_line(1, "after")
    )
    with lab.daemon() as process:
        until(lambda: "claude:s1" in lab.sessions() and lab.events("claude:s1")[-1].summary == "after", seconds=200)
        peak = int(Path(f"/proc/{process.pid}/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024
        until(lambda: lab.status()["state"] == "ready")
    assert lab.archived(path) == path.read_bytes()
    return peak


@pytest.mark.fault(78)
def test_bombs_are_taken_in_by_a_daemon_of_bounded_size(lab):
    assert bombs_through_the_daemon(lab, MIB // 4) < 150


@pytest.mark.long
@pytest.mark.fault(78)
def test_bombs_as_long_as_a_line_may_be_are_taken_in(lab):
    peak = bombs_through_the_daemon(lab, 7 * MIB)
    print(f"\npeak {peak:.0f} MiB")
    assert peak < 700
