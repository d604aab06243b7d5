from __future__ import annotations

import json

from lab import Lab


def test_visible_leaves_out_what_the_agent_took_back(lab: Lab):
    """mycode: a rewind marker takes the conversation back to an earlier message."""
    folder = lab.user_home / ".mycode" / "sessions" / "abc"
    folder.mkdir(parents=True)
    said = [
        {"role": "user", "content": [{"type": "text", "text": "first"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "answer one"}]},
        {"role": "user", "content": [{"type": "text", "text": "wrong turn"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "answer two"}]},
        {"role": "rewind", "meta": {"rewind_to": 2}},
        {"role": "user", "content": [{"type": "text", "text": "better"}]},
    ]
    (folder / "messages.jsonl").write_text("".join(json.dumps(each) + "\n" for each in said))
    assert lab.cli("ingest").returncode == 0

    def summaries(*words: str) -> list[str]:
        found = lab.cli("events", "mycode:abc", "--json", "--kind", "user_msg", *words)
        assert found.returncode == 0, found.stderr
        return [json.loads(line)["summary"] for line in found.stdout.splitlines()]

    assert summaries() == ["first", "wrong turn", "better"]
    assert summaries("--visible") == ["first", "better"]
    assert summaries("--visible", "-n", "1") == ["better"]
