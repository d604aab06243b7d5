"""Which shell commands run tests: what people and agents really type, and what only looks like it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, strategies as st

from sessiond.adapters.commands import is_test_command

RUNS_TESTS = [
    "pytest",
    "pytest -q tests/test_a.py::test_b",
    "python -m pytest -x",
    "python3.12 -W error -m unittest discover",
    ".venv/bin/pytest",
    ".venv/bin/python -m pytest tests 2>&1 | tail -20",
    "tox -e py311",
    "nox",
    "npm test",
    "npm t",
    "npm run test:unit -- --watch=false",
    "npm --prefix web run test",
    "pnpm test",
    "pnpm --filter web test",
    "pnpm -r run test",
    "pnpm vitest run",
    "yarn test",
    "yarn jest src",
    "yarn workspace web test",
    "bun test",
    "bun run test",
    "npx jest",
    "npx -y vitest run",
    "npx playwright test --project=chromium",
    "npx mocha",
    "jest --ci",
    "vitest run",
    "go test ./...",
    "go -C sub test ./...",
    "cargo test --all",
    "cargo +nightly test",
    "cargo nextest run",
    "make test",
    "make -C build check",
    "make lint test",
    "make 2>&1 test",
    "mise run test:unit",
    "mvn clean test",
    "./mvnw -q verify",
    "./gradlew :app:testDebugUnitTest",
    "gradle test",
    "dotnet test",
    "rspec",
    "rake test",
    "bundle exec rspec spec/models",
    "bundle exec rake spec",
    "bin/rails test",
    "vendor/bin/phpunit --filter x",
    "php artisan test",
    "php vendor/bin/phpunit",
    "ctest --output-on-failure",
    "deno test",
    "deno task test",
    "swift test",
    "mix test",
    "zig build test",
    "zig test src/main.zig",
    "node --test",
    "python manage.py test app",
    "cd web && npm test",
    "cd /a/b; pytest",
    "CI=1 FOO='a b' pytest",
    "env -u HOME CI=1 pytest",
    "timeout 120 pytest",
    "timeout -k 5 120s go test ./...",
    "time make test",
    "nice -n 10 pytest",
    "sudo -u app pytest",
    "bash -lc 'cd x && pytest -q'",
    'bash -c "npm run test"',
    """bash -lc "bash -c 'pytest'" """,
    "uv run pytest",
    "uv run --with x pytest -q",
    "poetry run python -m pytest",
    "coverage run -m pytest",
    "pytest | tail -5",
    "git add -A && pytest && git commit -m wip",
    "pytest > out.txt 2>&1; tail out.txt",
    "pytest &> out.txt",
    "if pytest; then echo ok; fi",
    "for i in 1 2; do pytest; done",
    "! pytest",
    "(cd x && cargo test)",
    "echo $(pytest)",
    "docker compose exec -T web pytest -q",
    "docker run --rm -v /a:/a image go test ./...",
    "find . -name '*_test.py' | xargs -n 1 pytest",
    "cat > a.py <<'EOF'\nprint(1)\nEOF\npytest a.py",
    "pytest \\\n  -q",
    "# run them\npytest",
]

DOES_NOT = [
    "",
    "ls",
    "grep pytest setup.cfg",
    "grep -rn 'npm test' .",
    "pip install pytest",
    "uv add pytest",
    "uv pip install pytest tox",
    "npm install jest",
    "npm i -D vitest",
    "cat test.py",
    "cat tests/test_a.py | head",
    "git commit -m 'run pytest'",
    'git commit -m "make test pass; pytest"',
    'git commit -m "$(cat <<\'EOF\'\nFix "quoted" thing\n\nmake test\npytest\nEOF\n)"',
    "cat > ci.sh <<EOF\npytest\nEOF",
    "echo pytest",
    "echo 'a && pytest'",
    "which pytest",
    "pytest --version",
    "pytest --collect-only",
    "jest --help",
    "cargo test --no-run",
    "cargo build",
    "go build ./...",
    "go vet ./...",
    "make build",
    "make -C test build",
    "make TEST=1 build",
    "npm run build",
    "npm run latest",
    "npm ci",
    "yarn install",
    "mvn -Dtest=Foo package",
    "python test.py.bak",
    "python -c 'import pytest'",
    "vim tests/test_a.py",
    "rm -rf .pytest_cache",
    "ps aux | grep jest",
    "tail -f test.log",
    "ls > pytest",
    "make build > test",
    "cd pytest",
    "docker run --rm python pip install pytest",
    "bash test.sh",
    "bash -c 'pip install pytest'",
    "test -f pytest",
    "[ -f x ] && echo test",
    "gh pr checks",
    "git checkout -b test",
    "ls # then pytest",
]


@pytest.mark.parametrize("command", RUNS_TESTS)
def test_a_command_that_runs_tests_is_recognised(command):
    assert is_test_command(command)


@pytest.mark.parametrize("command", DOES_NOT)
def test_a_command_that_only_mentions_tests_is_not(command):
    assert not is_test_command(command)


def test_an_argv_is_understood_like_a_command_line():
    assert is_test_command(["bash", "-lc", "cd x && pytest -q"])
    assert is_test_command(["pytest", "-q"])
    assert not is_test_command(["git", "commit", "-m", "run; pytest"])
    assert not is_test_command([])


@pytest.mark.parametrize(
    "unit", ["'", '"', "\\", "<<a\n", "$(", "((", "test ", 'bash -c "', "a=b ", "env ", "9", "-", "npx "]
)
def test_hostile_commands_cost_no_more_than_long_ones(unit):
    command = (unit * 400_000)[:400_000] + " pytest"
    began = time.perf_counter()
    is_test_command(command)
    is_test_command("test " + command)
    assert time.perf_counter() - began < 1.0


@given(st.one_of(st.text(), st.lists(st.text()), st.text(alphabet="pytes'\"\\ \n<&;|()$#-c")))
def test_any_text_gets_an_answer(command):
    assert is_test_command(command) in (True, False)
