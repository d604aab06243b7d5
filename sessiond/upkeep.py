"""What changes the store besides intake: the passes, and what people ask for by hand.

Each verb takes parameters and returns a report, both JSON. The daemon runs them one at a time between its scheduled
passes; without a daemon a command holds the lock and runs its verb itself, on the same code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessiond.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sessiond.config.settings import Config
    from sessiond.intake.pipeline import Pipeline
    from sessiond.paths import Paths
    from sessiond.trouble import Troubles

    Verb = Callable[[dict[str, Any]], dict[str, Any]]


class Upkeep:
    """The verbs by name. `config` is asked each time: a reload may have brought another."""

    def __init__(self, config: Callable[[], Config], paths: Paths, pipeline: Pipeline, troubles: Troubles) -> None:
        self._config = config
        self._paths = paths
        self._pipeline = pipeline
        self._troubles = troubles
        self._verbs: dict[str, Verb] = {}

    def do(self, verb: str, params: dict[str, Any]) -> dict[str, Any]:
        """Run a verb to its end. SessiondError where it cannot be done."""
        if verb not in self._verbs:
            raise UsageError(f"there is no {verb} to be done", hint=f"known are {', '.join(sorted(self._verbs))}")
        return self._verbs[verb](params)
