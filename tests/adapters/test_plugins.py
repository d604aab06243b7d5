"""An agent in a package of its own: found by its entry point, read like any other; a broken one is named and left out."""

from __future__ import annotations

import importlib
import sys
import textwrap
from pathlib import Path, PurePosixPath

import pytest

from lab import Lab, append
from sessiond import model
from sessiond.adapters import adapters, load_errors
from sessiond.adapters.base import NeedMore
from sessiond.model import Session
from sessiond.testing import check_adapter

HERON = '''
    """Heron keeps one file per session; its first line names the model for all that follow."""
    from sessiond.adapters.base import Claim, decode, time_of
    from sessiond.adapters.wording import clip, one_line
    from sessiond.model import Event, Fact, Kind, Role, session_key

    KINDS = {"ask": (Kind.USER_MSG, Role.USER), "say": (Kind.ASSISTANT_MSG, Role.ASSISTANT)}

    class Heron:
        flavor = "heron"
        version = 1

        def homes(self, env, user_home):
            return [user_home / ".heron"]

        def folders(self, home):
            return [home / "flights"]

        def wants(self, path):
            return path.parts[0] == "flights" and path.suffix == ".jsonl"

        def claims(self, path, head):
            return Claim(path.stem, path.name, cwd_may_come=False) if self.wants(path) else None

        def parse(self, line, carry):
            record = decode(line)
            if record.get("type") == "header":
                model = record.get("model")
                return [Fact("model", model)] if isinstance(model, str) and model else []
            kind, role = KINDS.get(str(record.get("type")), (Kind.LIFECYCLE, Role.SYSTEM))
            name, text = record.get("id"), record.get("text")
            text = text if isinstance(text, str) else ""
            key = session_key(name) if isinstance(name, str) and name else None
            return [Event(kind, key, ts=time_of(record.get("at")), role=role, summary=one_line(text), text=clip(text),
                          is_turn=kind is Kind.USER_MSG)]

        def resume(self, session):
            return ["heron", "fly", session.native_session_id]

    ADAPTER = Heron()
'''
LINES = (
    b'{"type":"header","model":"grey-1"}\n'
    b'{"type":"ask","id":"1","at":"2026-05-01T10:00:00Z","text":"Where to?"}\n'
    b'{"type":"say","id":"2","at":"2026-05-01T10:00:01Z","text":"To the lake."}\n'
)


class Packages:
    """Installs packages into a folder of sys.path, as pip leaves them: a module and a dist-info."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.modules: list[str] = []

    def install(self, name: str, source: str, *points: str) -> None:
        (self.folder / f"{name}.py").write_text(textwrap.dedent(source))
        info = self.folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("\n".join(["[sessiond.adapters]", *points]) + "\n")
        self.modules.append(name)
        importlib.invalidate_caches()
        adapters.cache_clear()


@pytest.fixture
def packages(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    known = set(model.FLAVORS)
    packages = Packages(tmp_path)
    yield packages
    monkeypatch.undo()
    for name in packages.modules:
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    adapters.cache_clear()
    adapters()
    model.FLAVORS.clear()
    model.FLAVORS.update(known)


def test_the_sessions_of_an_installed_plug_in_are_ingested(packages, tmp_path):
    packages.install("heron_adapter", HERON, "heron = heron_adapter:ADAPTER")
    lab = Lab(tmp_path / "lab")
    path = lab.user_home / ".heron" / "flights" / "f1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(LINES[:60])
    lab.ingest()
    append(path, LINES[60:])
    lab.ingest()

    assert [event.summary for event in lab.events("heron:f1")] == ["Where to?", "To the lake."]
    session = lab.sessions()["heron:f1"]
    assert (session.model, session.cost.turns) == ("grey-1", 1)
    assert lab.archived(path) == LINES
    assert adapters()["heron"].resume(session) == ["heron", "fly", "f1"]
    assert not load_errors


def test_a_plug_in_may_be_configured_like_any_agent(packages, tmp_path):
    packages.install("heron_adapter", HERON, "heron = heron_adapter:ADAPTER")
    lab = Lab(tmp_path / "lab")
    path = tmp_path / "lake" / "flights" / "f2.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(LINES)
    lab.write_config(f'[sources.heron]\nroots = ["{tmp_path / "lake"}"]\n')
    lab.ingest()
    assert set(lab.sessions()) == {"heron:f2"}


def test_the_contract_runs_on_a_plug_in(packages, tmp_path):
    packages.install("heron_adapter", HERON, "heron = heron_adapter:ADAPTER")
    samples = tmp_path / "samples" / "flights"
    samples.mkdir(parents=True)
    (samples / "f1.jsonl").write_bytes(LINES)
    expected = '[{"line": 1, "records": [{"fact": "model", "value": "grey-1"}]}, {"line": 2, "records": [{"event": "user_msg", "is_turn": true}]}, {"line": 3, "records": [{"event": "assistant_msg"}]}]'
    (samples / "f1.jsonl.expected.json").write_text(expected)
    check_adapter(adapters()["heron"], tmp_path / "samples")
    (samples / "f1.jsonl.expected.json").write_text(expected.replace("grey-1", "white-1"))
    with pytest.raises(AssertionError, match="'grey-1' instead of 'white-1'"):
        check_adapter(adapters()["heron"], tmp_path / "samples")


@pytest.mark.parametrize(
    ("source", "point", "why"),
    [
        ("import nothing_of_that_name", "ADAPTER", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("raise SystemExit(3)", "ADAPTER", "SystemExit: 3"),
        ("X = 1", "ADAPTER", "AttributeError"),
        ("ADAPTER = object()", "ADAPTER", "no adapter: it has no homes, folders, wants, claims, parse, resume"),
        (HERON, "Heron", "Heron is a class"),
        (HERON.replace('"heron"', '"Grey Heron"'), "ADAPTER", "flavor 'Grey Heron' is not a lower-case word"),
        (HERON.replace("version = 1", "version = '1'"), "ADAPTER", "version '1' is not a whole number"),
        (HERON.replace('"heron"', '"claude"'), "ADAPTER", "flavor 'claude' is taken by another adapter"),
    ],
)
def test_a_plug_in_that_cannot_be_loaded_is_left_out_and_named(packages, source, point, why):
    built_in = adapters()["claude"]
    packages.install("heron_adapter", source, f"broken = heron_adapter:{point}")
    assert adapters()["claude"] is built_in
    assert "heron" not in adapters()
    assert list(load_errors) == ["broken"]
    assert why in load_errors["broken"]


def test_what_is_mended_is_named_no_longer(packages):
    packages.install("heron_adapter", "X = 1", "heron = heron_adapter:ADAPTER")
    adapters()
    assert load_errors
    (packages.folder / "heron_adapter.py").write_text(textwrap.dedent(HERON))
    sys.modules.pop("heron_adapter")
    importlib.invalidate_caches()
    adapters.cache_clear()
    assert "heron" in adapters()
    assert not load_errors


def test_a_broken_plug_in_does_not_keep_another_out(packages):
    packages.install("a_broken", "1 / 0", "a = a_broken:ADAPTER")
    packages.install("heron_adapter", HERON, "heron = heron_adapter:ADAPTER")
    assert "heron" in adapters()
    assert list(load_errors) == ["a"]


@pytest.mark.parametrize("method", ["homes", "folders", "wants", "claims"])
def test_a_plug_in_that_fails_later_costs_its_own_files_alone(packages, tmp_path, method):
    broken = HERON + f"    Heron.{method} = lambda self, *given: 1 / 0\n"
    packages.install("heron_adapter", broken, "heron = heron_adapter:ADAPTER")
    lab = Lab(tmp_path / "lab")
    mine = lab.user_home / ".heron" / "flights" / "f1.jsonl"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(LINES)
    lab.claude_file().write_bytes(b'{"type":"user","uuid":"u","message":{"content":"hi"},"cwd":"/w"}\n')
    lab.ingest()
    assert set(lab.sessions()) == {"claude:s1"}
    assert load_errors == {"heron": f"{method}: ZeroDivisionError: division by zero"}


def test_a_line_that_a_plug_in_fails_at_is_rejected(packages, tmp_path):
    packages.install("heron_adapter", HERON.replace("record = decode(line)", "1 / 0"), "heron = heron_adapter:ADAPTER")
    lab = Lab(tmp_path / "lab")
    path = lab.user_home / ".heron" / "flights" / "f1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(LINES)
    lab.ingest()
    assert [reason for _, _, reason in lab.rejects()] == ["adapter_error"] * 3
    assert lab.archived(path) == LINES


def test_a_plug_in_cannot_have_the_home_itself_watched(packages):
    broken = HERON.replace('[home / "flights"]', "[home]")
    packages.install("heron_adapter", broken, "heron = heron_adapter:ADAPTER")
    assert adapters()["heron"].folders(Path("/h")) == []
    assert "below the home" in load_errors["heron"]


def test_a_plug_in_may_ask_for_more_of_a_file(packages):
    asking = (
        HERON
        + "    from sessiond.adapters.base import NeedMore\n    def ask(*given): raise NeedMore\n    Heron.claims = ask\n"
    )
    packages.install("heron_adapter", asking, "heron = heron_adapter:ADAPTER")
    with pytest.raises(NeedMore):
        adapters()["heron"].claims(PurePosixPath("flights/f.jsonl"), [])
    assert not load_errors


def test_a_plug_in_that_cannot_resume_says_so(packages):
    broken = HERON + "    Heron.resume = lambda self, session: 1 / 0\n"
    packages.install("heron_adapter", broken, "heron = heron_adapter:ADAPTER")
    adapters()
    assert adapters()["heron"].resume(Session("heron:x", "heron", "x")) is None
    assert load_errors == {"heron": "resume: ZeroDivisionError: division by zero"}
