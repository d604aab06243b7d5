"""The mock on 127.0.0.1: reads a request in its wire's format, finds the step of the script, serves it, notes it."""

from __future__ import annotations

import gzip
import json
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType

from realclients.mock import scripts, tools
from realclients.mock.ledger import Ledger, Served, ServedCall
from realclients.mock.scripts import Call, Place, Refuse, Say, Think
from realclients.mock.wires import wire_of
from realclients.mock.wires.shape import Asked, Calling, Frame, Json, Pause, Reply, Text, Thought, Tokens

MODELS = ("claude-sonnet-4-5", "gpt-5.5", "grok-4", "gemini-2.5-pro", "mock-model")
_CHARS_PER_TOKEN = 4
_PAUSE_SECONDS = 0.002  # between two frames: a stream, not a block


class Mock(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.ledger = Ledger()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed hangs up in the middle: nothing to say about it."""


@contextmanager
def running() -> Iterator[Mock]:
    mock = Mock()
    thread = threading.Thread(target=mock.serve_forever, name="mock", daemon=True)
    thread.start()
    try:
        yield mock
    finally:
        mock.shutdown()
        mock.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Mock

    def log_message(self, *_: object) -> None:
        pass

    def do_CONNECT(self) -> None:
        """As the clients' proxy: whatever asks for the outside is noted and refused."""
        self.server.ledger.refused.append(self.path[:120])
        self.close_connection = True
        self._send(403, {"error": "no network here"})

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        if self.path.startswith("http"):
            self.do_CONNECT()
        elif "/models" in self.path:
            listed = [{"id": each, "object": "model", "type": "model", "display_name": each} for each in MODELS]
            self._send(200, {"object": "list", "data": listed, "has_more": False})
        else:
            self._send(404, {"error": {"message": "not found", "type": "not_found_error"}})

    def do_POST(self) -> None:
        raw = self._body()
        path = self.path.partition("?")[0].rstrip("/")
        if path.startswith("http"):
            self.do_CONNECT()
        elif path.endswith(("/count_tokens", ":countTokens")):
            size = max(1, len(raw) // _CHARS_PER_TOKEN)
            self._send(200, {"input_tokens": size, "totalTokens": size})
        elif (wire := wire_of(path)) is not None:
            self._complete(wire, wire.read(json.loads(raw), path))
        else:
            self.server.ledger.strange.append(self.path[:120])
            self._send(404, {"error": {"message": "not found", "type": "not_found_error"}})

    def _complete(self, wire: ModuleType, asked: Asked) -> None:
        number, place = self.server.ledger.next_number(), scripts.locate(asked.turns)
        step = _step(place, asked)
        refusal = next((block for block in step if isinstance(block, Refuse)), None)
        if refusal and place and self.server.ledger.refuses_again(place, refusal.times):
            self.server.ledger.add(Served(number, place, status=refusal.status, is_finished=True))
            self._send(refusal.status, wire.error(refusal.status, "a scripted error"))
            return
        reply, served = _reply(number, place, step, asked, says_cache_writes=wire.SAYS_CACHE_WRITES)
        self.server.ledger.add(served)
        if asked.is_stream:
            self._stream(wire.stream(reply))
        else:
            self._send(200, wire.whole(reply))
        served.is_finished = True

    # --- bytes ---

    def _send(self, status: int, answer: Json) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if status in (429, 500):
            self.send_header("retry-after", "1")
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, frames: Iterable[Frame | Pause]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for frame in frames:
            if isinstance(frame, Pause):
                self.server.ledger.stalled.set()
                time.sleep(frame.seconds)
                continue
            name = f"event: {frame.name}\n" if frame.name else ""
            text = frame.data if isinstance(frame.data, str) else json.dumps(frame.data)
            self._chunk(f"{name}data: {text}\n\n".encode())
            time.sleep(_PAUSE_SECONDS)
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            data = b""
            while size := int(self.rfile.readline().partition(b";")[0] or b"0", 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        packed = (self.headers.get("Content-Encoding") or "").lower()
        return gzip.decompress(data) if packed == "gzip" else zlib.decompress(data) if packed == "deflate" else data


def _step(place: Place | None, asked: Asked) -> scripts.Step:
    """The blocks to serve. A request that could not run the script is the client's own business: a stock answer."""
    is_aside = place is None or asked.forced_tool is not None or not tools.offers(asked.tools, "shell")
    if place is None or is_aside or asked.turns[-1].text.startswith("<system-reminder>Write an ultra-short"):
        return []
    steps = [step for step in scripts.steps_of(place) if not _is_wait(step) or tools.offers(asked.tools, "wait")]
    return steps[place.step] if place.step < len(steps) else []


def _is_wait(step: scripts.Step) -> bool:
    return isinstance(step[0], Call) and step[0].action == "wait"


def _reply(
    number: int, place: Place | None, step: scripts.Step, asked: Asked, *, says_cache_writes: bool
) -> tuple[Reply, Served]:
    blocks: list[Text | Thought | Calling] = []
    calls: list[ServedCall] = []
    for block in step:
        if isinstance(block, Say):
            blocks.append(Text(block.text, block.stall_seconds))
        elif isinstance(block, Think):
            blocks.append(Thought(block.text))
        elif isinstance(block, Call):
            chosen = tools.choose(asked.tools, block, asked.turns[-1].text)
            assert chosen is not None, "a step is served only where there is a shell"
            blocks.append(Calling(f"mock{number:04d}{len(blocks):02d}", chosen.tool, chosen.arguments, chosen.freeform))
            calls.append(ServedCall(block.action, chosen.tool.name, chosen.is_edit, block.is_test, block.is_failing))
    is_answer = bool(step) and place is not None
    if not is_answer:
        blocks = _stock(number, asked)
    tokens = _tokens(number, place.step if place else 0, blocks, says_cache_writes=says_cache_writes)
    served = Served(
        number,
        place,
        texts=sum(isinstance(block, Text) for block in blocks),
        thoughts=sum(isinstance(block, Thought) for block in blocks),
        calls=calls,
        tokens=tokens,
        is_aside=not is_answer,
    )
    return Reply(number, asked.model, blocks, tokens), served


def _stock(number: int, asked: Asked) -> list[Text | Thought | Calling]:
    forced = next((tool for tool in asked.tools if tool.name == asked.forced_tool), None)
    if forced is not None:
        return [Calling(f"mock{number:04d}aside", forced, tools.fill_required(forced))]
    return [Text('{"title": "Scripted session"}')]


def _tokens(number: int, step: int, blocks: list[Text | Thought | Calling], *, says_cache_writes: bool) -> Tokens:
    """Different for every request: a sum then shows what was counted twice and what was lost."""
    sizes = {id(block): _size(block) for block in blocks}
    return Tokens(
        input=1000 + 37 * number,
        output=sum(sizes.values()),
        cache_read=512 * step,
        cache_write=64 + number if says_cache_writes and step == 0 else 0,
        reasoning=sum(sizes[id(block)] for block in blocks if isinstance(block, Thought)),
    )


def _size(block: Text | Thought | Calling) -> int:
    text = json.dumps(block.arguments) if isinstance(block, Calling) else block.text
    return max(1, len(text) // _CHARS_PER_TOKEN)
