"""What runs tests, as tables for `commands`: a new runner is one more word here."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# One of these occurs in every command that can match: spares most commands the lexer.
HINTS = (
    *("test", "tox", "nox", "check", "spec", "jest", "mocha", "phpunit", "verify", "ava", "nose", "jasmine"),
    *("prove", "bats", "trial", "behave", "cypress", "tarpaulin", "llvm-cov", "npm t", "cargo t", "cucumber"),
    "busted",
)

SHELLS = _words("bash sh zsh dash ksh fish pwsh powershell")
KEYWORDS = _words("if then elif else do while until ! { time")
CONTAINERS = _words("docker docker-compose podman nerdctl")
PYTHONS = ("python", "pypy")
INTERPRETERS = _words("php ruby node")

# Commands whose first own word is the test run.
RUNNERS = _words("""
    pytest py.test tox nox nosetests nose2 trial behave stestr unittest jest vitest mocha ava jasmine rspec
    phpunit paratest pest ctest gotestsum bats busted prove elm-test cargo-nextest cucumber
""")

SUBCOMMANDS: dict[str, frozenset[str]] = {
    "cargo": _words("test t nextest tarpaulin llvm-cov"),
    "npm": _words("test t tst"),
    "cypress": _words("run"),
    "dotnet": _words("test vstest"),
    "rails": _words("test spec test:all test:system"),
    "dune": _words("test runtest"),
} | dict.fromkeys(
    _words("""
        go playwright zig hatch manage.py setup.py artisan bun deno swift mix flutter dart bazel bazelisk
        meson cabal stack gleam forge hardhat lein ng moon melos composer
    """),
    _words("test"),
)

# Any of their arguments may be the target: `make lint test`, `mvn clean verify`, `./gradlew :app:test`.
TARGET_TOOLS = _words("""
    make gmake ninja mvn mvnw gradle gradlew rake just task mise sbt nx turbo xcodebuild invoke inv ant
""")
TARGET_NAMES = _words("check verify spec specs distcheck runtest")
TEST_WORDS = _words("test tests unittest unittests runtests")
SCRIPT_TOOLS = _words("npm pnpm yarn bun deno composer")
ONLY_NAMED_SCRIPTS = _words("npm deno composer")  # they need the word `run` before a script's name

# They only look, list or build.
NOT_RUNNING = _words("""
    --version --help -h --collect-only --co --fixtures --listTests --list-tests --showConfig --init --no-run
    --listenvs --dry-run
""")

# What runs another command, given as its arguments: options with a value, and how many own words.
WRAPPERS: dict[str, tuple[frozenset[str], int]] = {
    "env": (_words("-u --unset -C --chdir"), 0),
    "timeout": (_words("-s --signal -k --kill-after"), 1),
    "gtimeout": (_words("-s --signal -k --kill-after"), 1),
    "nice": (_words("-n --adjustment"), 0),
    "ionice": (_words("-c -n"), 0),
    "sudo": (_words("-u -g -C -D"), 0),
    "xargs": (_words("-n -P -I -L -d -a -E -s"), 0),
    "stdbuf": (_words("-i -o -e"), 0),
    "xvfb-run": (_words("-n -s -e -f -p -w"), 0),
    "npx": (_words("-p --package -c"), 0),
    "uvx": (_words("--from --with -p --python"), 0),
} | dict.fromkeys(
    _words("nohup exec command builtin caffeinate unbuffer bunx pnpx doas setsid dotenv cross-env chronic"),
    (frozenset(), 0),
)

# The same behind a word of its own: `uv run pytest`, `bundle exec rspec`, `pnpm dlx vitest`.
RUN_WORDS: dict[str, frozenset[str]] = {
    "uv": _words("run"),
    "bundle": _words("exec"),
    "pnpm": _words("exec dlx"),
    "npm": _words("exec x"),
    "yarn": _words("exec dlx"),
    "bun": _words("x"),
} | dict.fromkeys(_words("coverage poetry pipenv pdm rye hatch pixi conda mamba"), _words("run"))

# Options whose value is the next word, over all tools here; else that value would pass for a subcommand.
TAKES_VALUE = _words("""
    -C -f -F -p -w -W -X -u -e -v -n -pl --prefix --workspace --filter --cwd --dir --directory --project
    --package --manifest-path --package-path --file --project-dir --python --with --extra --group --env-file
    --settings --user --workdir --env --name --network --volume --profile
""")
