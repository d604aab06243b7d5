"""What a client is to the runner: how it is installed, configured and called, and what its files cannot tell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path


class Client:
    """An npm package with one program. `folder` is where it is installed, `home` the HOME it is given."""

    flavor: str
    package: str
    versions: Sequence[str] = ("latest",)  # tried in this order: a registry may lack what the newest one needs
    program: str

    # What a reader of its files can know at all. The judge asks for no more.
    uses_proxy = True  # False: it sends loopback traffic to the proxy as well
    keeps_retries = True  # an API error that was retried leaves a record
    keeps_refusals = True  # an API error that ended the turn leaves a record
    marks_end = True  # a turn that ended well is marked
    keeps_asides = False  # what it asks the model for itself is in the session's files as well
    keeps_open_calls = True  # a call is written before its result is there
    resumes_refused = True  # goes on with a session that has no answer at all
    has_sub_agents = True
    keeps_first_prompt = True  # False: nothing is written before the first answer
    keeps_tokens_of_killed = True  # False: what was spent is written when the turn ends
    session_folder = False  # a session is a folder of its own: it goes as a whole

    def configure(self, home: Path, url: str) -> None:
        """Write its settings below `home`."""

    def env(self, url: str) -> dict[str, str]:
        return {}

    def new(self, prompt: str) -> Sequence[str]:
        """The arguments that start a session without a terminal."""
        raise NotImplementedError

    def go_on(self, arguments: Sequence[str], prompt: str) -> Sequence[str]:
        """The same for a session to go on with; `arguments` are those of sessiond's own resume command."""
        raise NotImplementedError

    def executable(self, folder: Path) -> Path:
        return folder / self.flavor / "node_modules" / ".bin" / self.program

    def version(self, folder: Path) -> str:
        manifest = folder / self.flavor / "node_modules" / self.package / "package.json"
        return str(json.loads(manifest.read_text())["version"])


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
