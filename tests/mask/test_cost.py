"""Neither what is clean nor what was made to be slow takes long."""

from __future__ import annotations

import time
import timeit

import pytest

from sessiond.mask import Masker
from sessiond.mask.vendors import _BEGINNINGS

mask = Masker().mask

# How each of the patterns begins, and what it may run on with.
ADVERSARIES = [
    "sk-", "sk-a", "ghp_", "eyJ", "eyJaaaaaaaaaa.", "\\neyJaaaaaaaa.", "SG.", "SG.aaaaaaaaaaaaaaaaa.", "AKIA", "xoxb-",
    "glpat-", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "-----END ", "-", "_", "://",
    "://a:", "://a@", "://a:b@", "https://a:a", "password", "password=", 'password="', "password: ", "password='\\",
    "token\\", 'token\\"', '"token": "a\\', "--a-", "--password ", "--a-a-a-token ", "secret_", "key", "api_key ",
    "Authorization: ", "authorization:Bearer ", "bearer ", "Bearer a", "curl ", "curl -u a", "sshpass -p ", "pass:",
    "a", "A", " ", "\n", "\\", '"', "'", ":", "=", "1", "12345678:AA", "12345678", "[masked:", "[masked:x]", "aaa1Q~",
    "=" * 30, "&sig=", "hooks.slack.com/services/", "MIIE" * 9 + "\n", "é", "\ud800",
    "---- BEGIN ", "Private-Lines: 1\n", "Private-Lines: 1" + "\\n" * 9, "cookie: ", "cookie: a=", "Cookie: a=b; ", "a=b; ",
    "mysql ", "mysql -p", " -p", "mysql -pa ", "docker login -p ", "redis-cli -a a\\", "htpasswd -b a ", "smbclient -U a",
    "curl -b a", "echo ", "echo a", "echo a |", "echo a:|", "echo -n a | a", "password is ", "my password is a ",
    "password a ", "machine a login ", "machine a login a password ", "identified by '", "password '", "<password>",
    "<a", "<token>a", "password, value", "password\n", 'password", "value', "user: a password: a ", "email=a,", "pass=",
    "A_KEY=", "A_KEY=a1", "?key=", "&code=a", ", Signature=", "u0026", "0" * 32 + "-", "0" * 36 + "N", "Ma1.aaaaaa.",
    "M" * 24 + ".", "a" * 14 + ".atlasv1.", "%3D", "\\u0022", "[0m", "fm2_" + "a" * 40 + ",", "xoxe.xoxp-", "dp.pt.", "1//0",
]  # fmt: skip
END = "-----END RSA PRIVATE KEY-----"


def seconds(text: str) -> float:
    start = time.process_time()
    mask(text)
    return time.process_time() - start


@pytest.mark.fault(78)
@pytest.mark.parametrize("piece", ADVERSARIES)
def test_a_megabyte_of_anything_takes_less_than_a_second(piece):
    text = (piece * (1_000_000 // len(piece) + 1))[:1_000_000]
    limit = 1.0 * slowness()
    assert seconds(text) < limit
    assert seconds(f"password= {text[:500_000]}@://{END}{text[:500_000]}{END}") < limit


@pytest.mark.fault(78)
@pytest.mark.parametrize("beginning", [beginning for beginning, _, _ in _BEGINNINGS])
def test_the_beginning_of_a_token_over_and_over_takes_no_longer(beginning):
    limit = 0.4 * slowness()
    for piece in (beginning, beginning + " ", beginning + "a1B2c3D4e5F6" + "."):
        assert seconds((piece * (200_000 // len(piece) + 1))[:200_000]) < limit


def test_clean_text_costs_next_to_nothing():
    clean = (
        "I will look at how the parser treats an empty list first, then add a test for the case where the file ends "
        "without a newline, and then run the whole suite again to see that nothing else broke."
    )
    assert len(clean) >= 190
    mask(clean)
    fastest = min(timeit.repeat(lambda: mask(clean), number=2000, repeat=15)) / 2000
    assert fastest < 2e-6 * slowness()


def slowness() -> float:
    """How much slower than the machine of the target this one is right now; 1.0 there."""
    fastest = min(timeit.repeat("sum(range(1000))", number=200, repeat=15)) / 200
    return max(1.0, fastest / 6e-6)
