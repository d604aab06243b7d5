"""`make realclients`: every real client whose adapter is registered runs its scenarios while the daemon watches.

Exit code 0 when all checks of all clients that could be installed are right, else 1; 2 when none could.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

# The tree this file stands in is the one that is judged.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lab import Lab
from realclients import install, isolation
from realclients.clients import CLIENTS, Client
from realclients.mock import server
from realclients.report import Judged, print_outcome, print_report
from realclients.scenarios import SCENARIOS
from realclients.session import Bench, play
from realclients.visibility import Visibility
from sessiond.adapters import adapters

MAX_SECONDS = 1800  # of all that comes after the installing
ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    options = _options()
    os.chdir(ROOT)  # `python -m sessiond` takes the package of the folder it is started in
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is stopped
    judged, ready = _install(options.clients, options.clients_dir)
    signal.signal(signal.SIGALRM, lambda *_: sys.exit("not done in time"))
    signal.alarm(MAX_SECONDS)
    is_alone = isolation.leave_network()
    print("network: " + ("loopback alone" if is_alone else "no namespace here; the clients' proxy refuses the rest"))
    scratch = Path(tempfile.mkdtemp(prefix="sdrc"))
    try:
        for client, each in ready:
            print(f"{client.flavor} {each.version}", flush=True)
            _play_all(client, each, options, scratch / client.flavor)
    finally:
        if options.keep:
            print(f"kept: {scratch}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    print_report(judged)
    return 2 if not ready else int(not all(each.is_right for _, each in ready))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [flavor for flavor in CLIENTS if flavor in adapters()]
    parser.add_argument("--clients", type=_names(CLIENTS), default=known, help=f"default: {','.join(known)}")
    parser.add_argument("--scenarios", type=_names(SCENARIOS), default=list(SCENARIOS), help=",".join(SCENARIOS))
    parser.add_argument("--keep", action="store_true", help="keep homes, logs and store of this run, and say where")
    parser.add_argument(
        "--clients-dir", type=Path, default=ROOT / "build" / "realclients", help="where they are installed"
    )
    return parser.parse_args()


def _names(known: Collection[str]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        wanted = [each.strip() for each in text.split(",") if each.strip()]
        if unknown := [each for each in wanted if each not in known]:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
        return wanted

    return names


def _install(names: Sequence[str], folder: Path) -> tuple[list[Judged], list[tuple[Client, Judged]]]:
    """Everything that needs the network, before it is left."""
    judged, ready = [], []
    folder = folder.absolute()
    for name in names:
        each = Judged(name)
        judged.append(each)
        try:
            if name not in adapters():
                raise install.NotInstalled("no adapter is registered for it")
            each.version = install.install(CLIENTS[name], folder)
            ready.append((CLIENTS[name], each))
        except install.NotInstalled as error:
            each.skipped = str(error)
            print(f"{name}: skipped: {error}", flush=True)
    return judged, ready


def _play_all(client: Client, judged: Judged, options: argparse.Namespace, folder: Path) -> None:
    """One client: its own home, its own daemon, its own mock."""
    lab = Lab(folder)
    installed = options.clients_dir.absolute()
    with server.running() as mock, lab.daemon(), Visibility(lab, adapters()[client.flavor]) as visibility:
        client.configure(lab.user_home, mock.url)
        path = install.node_path(installed)
        bench = Bench(client, client.executable(installed), path, lab, mock, visibility, itertools.count(1))
        for name in options.scenarios:
            if name == "task" and not client.has_sub_agents:
                continue
            outcome = play(bench, SCENARIOS[name])
            judged.outcomes.append(outcome)
            print_outcome(client.flavor, outcome)
        sources = (lab.status() or {})["sources"]
        judged.unknown, judged.rejected = sources["unknown_types"], sources["rejected"]
        judged.refused = mock.ledger.refused + mock.ledger.strange


if __name__ == "__main__":
    sys.exit(main())
