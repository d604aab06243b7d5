"""The mock says the same in every wire's format, whole and streamed, and notes what it said. Part of `make test`."""

from __future__ import annotations

import json
import urllib.request

import pytest

from lab import until
from realclients.mock import server
from realclients.mock.scripts import prompt

SHELL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
PLAIN = prompt("Hello.", "plain", 7, "/w")
WIRES = {
    "/v1/messages": {
        "messages": [{"role": "user", "content": PLAIN}],
        "tools": [{"name": "Bash", "input_schema": SHELL}],
    },
    "/v1/responses": {"input": PLAIN, "tools": [{"type": "function", "name": "shell", "parameters": SHELL}]},
    "/v1/chat/completions": {
        "messages": [{"role": "user", "content": PLAIN}],
        "tools": [{"type": "function", "function": {"name": "bash", "parameters": SHELL}}],
    },
    "/v1beta/models/m:generateContent": {
        "contents": [{"role": "user", "parts": [{"text": PLAIN}]}],
        "tools": [{"functionDeclarations": [{"name": "run_shell_command", "parameters": SHELL}]}],
    },
}


@pytest.fixture
def mock():
    with server.running() as mock:
        yield mock


def _ask(url: str, body: dict) -> str:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


@pytest.mark.parametrize("path", WIRES)
def test_answer_is_the_scripts_and_is_noted(mock, path):
    streamed = path.replace(":generate", ":streamGenerate")
    whole = _ask(mock.url + path, WIRES[path])
    frames = _ask(mock.url + streamed, {**WIRES[path], "stream": True})

    assert "Here is reply 7" in whole
    assert "data: " in frames
    served = mock.ledger.of({7})
    until(lambda: all(each.is_finished for each in served))  # noted once it is sent, a moment after it is read
    assert [(each.texts, each.thoughts, each.is_finished, each.is_aside) for each in served] == [
        (1, 1, True, False)
    ] * 2
    for text, each in zip((whole, frames), served, strict=True):
        assert str(each.tokens.input) in text
    assert served[0].tokens.input != served[1].tokens.input


def test_request_without_a_shell_is_an_aside(mock):
    _ask(mock.url + "/v1/messages", {**WIRES["/v1/messages"], "tools": []})

    assert [each.is_aside for each in mock.ledger.of({7})] == [True]


def test_outside_is_refused_and_noted(mock):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": mock.url}))
    with pytest.raises(urllib.error.HTTPError) as refused:
        opener.open("http://example.com/", timeout=10)
    refused.value.close()

    assert mock.ledger.refused == ["http://example.com/"]
