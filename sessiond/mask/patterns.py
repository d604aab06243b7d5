r"""What secrets look like. Every pattern is linear: runs are possessive, and whatever may fail late is bounded.

Tokens of vendors are known by their beginning, everything else by what stands before it (`password=`, `Bearer`,
`://user:`). Where a guess must be made, short and wordlike values stay, so that prose and code remain readable.
"""

from __future__ import annotations

import re

# A token begins where a word begins. In text that holds JSON, "\n" before it is two characters, the last a letter.
_START = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))"

# Group name -> pattern; the group's name with "-" is what the mask shows.
_VENDORS = {
    "anthropic_key": r"sk-ant-[\w-]{16,}+",
    "openai_key": r"sk-[\w-]{20,}+",
    "github_token": r"gh[pousr]_[A-Za-z0-9]{20,}+|github_pat_[A-Za-z0-9]{16}\w*+",
    "gitlab_token": r"gl(?:pat|dt|rt|ptt|cbt|ft|soat)-[\w-]{16,}+(?:\.[\w-]++){0,3}",
    "slack_token": r"xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}+|xapp-[0-9]-[A-Za-z0-9-]{16,}+",
    "aws_key": r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    "google_key": r"AIza[\w-]{30,}+|ya29\.[\w.-]{20,}+|GOCSPX-[\w-]{20,}+",
    "stripe_key": r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}+|whsec_[A-Za-z0-9]{16}[A-Za-z0-9+/=]*+",
    "npm_token": r"npm_[A-Za-z0-9]{30,}+",
    "pypi_token": r"pypi-[A-Za-z0-9]{16}[\w-]{16,}+",
    "huggingface_token": r"hf_[A-Za-z0-9]{20,}+",
    "xai_key": r"xai-[A-Za-z0-9]{20,}+",
    "groq_key": r"gsk_[A-Za-z0-9]{20,}+",
    "digitalocean_token": r"do[opr]_v1_[a-f0-9]{32,}+",
    "sendgrid_key": r"SG\.[\w-]{16,}+\.[\w-]{16,}+",
    "twilio_key": r"SK[0-9a-f]{32}(?![A-Za-z0-9])",
    "azure_key": r"[A-Za-z0-9_~.]{3}[0-9]Q~[\w.~-]{31,}+",
    "jwt": r"eyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+){0,3}",
    # The same shape under many names: replicate, perplexity, tavily, linear, notion, docker, shopify, grafana, ...
    "api_key": r"(?:r8_|sbp_|ntn_|lin_api_|dckr_pat_|shp(?:at|ca|pa|ss)_|glsa_|figd_|rubygems_|pplx-|tvly-|csk-|nvapi-)"
    r"[A-Za-z0-9]{20}[\w-]*+",
}
TOKEN = re.compile(
    _START
    + "(?:"
    + "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _VENDORS.items())
    + r")|(?:(?<![0-9A-Za-z_-])|(?<=bot))(?P<telegram_token>[0-9]{8,10}:AA[\w-]{30,}+)",
    re.ASCII,
)
NEEDS_A_DIGIT = frozenset({"openai_key", "gitlab_token", "pypi_token", "slack_token", "api_key"})

# The same tokens in the cheapest terms: whatever TOKEN matches, one of these finds.
AFTER_UNDERSCORE = re.compile(r"_[A-Za-z0-9]{16}")
AFTER_HYPHEN = re.compile(
    r"-(?:[A-Za-z0-9]{16}|(?<=sk-)|(?<=xox[a-z]-)|(?<=xapp-)|(?<=gl[a-z]{2}-)|(?<=gl[a-z]{3}-)|(?<=glsoat-))"
)

PEM_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}?PRIVATE KEY(?: BLOCK)?-----")
PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,40}?PRIVATE KEY(?: BLOCK)?-----")
# What may stand before an END whose BEGIN was cut off: long lines of base64 and a last one of any length. To be matched
# at the start of the text before END turned round: looking for its beginning forwards would take quadratic time.
_BREAK = r"(?:\s|[nr]\\)"
_BASE64 = r"(?:[A-Za-z0-9+/](?!\\))"
PEM_TAIL_REVERSED = re.compile(rf"{_BREAK}*+=*+{_BASE64}*+(?:{_BREAK}++{_BASE64}{{16,}}+)*+")

WEBHOOK = re.compile(
    r"(?P<keep>hooks\.slack\.com/services/|discord(?:app)?\.com/api/webhooks/[0-9]{5,25}/)(?P<webhook>[\w/-]{20,}+)",
    re.ASCII,
)
SIGNATURE = re.compile(r"(?P<keep>[?&;]sig=)(?P<azure_signature>[A-Za-z0-9%+/=_-]{30,}+)")

# The last "@" before the path ends the password; people do put an "@" into one.
URL = re.compile(r"""(?P<keep>://[^\s/?#@:"'<>\\\[]{0,256}:)(?P<value>[^\s/"'<>\\]{1,512})(?=@)""")
URL_USER = re.compile(r"(?P<keep>://)(?P<value>[A-Za-z0-9_-]{20,256}+)(?=@)")

_QUOTE = r"""\\{0,7}["'`]"""
# A quoted value ends at the same quote, or where the text was cut.
_QUOTED = r"""(?P<quote>\\{0,7}["'`])(?P<quoted>(?:(?!(?P=quote))(?:\\.|[^\n\\]))*+)"""
_BARE = r"""(?P<bare>[^\s"'`,;&|<>()\[\]{}\\=:][^\s"'`,;&|<>()\[\]{}\\]*+)"""

AUTHORIZATION = re.compile(
    rf"(?P<keep>authorization(?:{_QUOTE})?\s{{0,3}}[:=]\s{{0,3}}(?:{_QUOTE})?"
    r"(?P<scheme>(?:bearer|basic|token|digest|negotiate|apikey)\s{1,3})?)(?P<value>[A-Za-z0-9._~+/=:-]{6,}+)",
    re.IGNORECASE,
)
BEARER = re.compile(r"(?P<keep>\bbearer\s{1,3})(?P<value>[A-Za-z0-9._~+/=-]{16,}+)", re.IGNORECASE)

# Names whose value is a secret. Nothing may stand between the name and its sign: "token_count: 5" is none. The first
# letter is a class of its own, outside (?i:), since only then does `re` skip from candidate to candidate.
_KEYS_OF = ("api", "role", "access", "master", "private", "signing", "account", "encryption", "subscription")
_KEY = "|".join(rf"(?<={word}key)|(?<={word}[_\- ]key)" for word in _KEYS_OF)
_PASS = r"(?<=[_-]pass)|(?<=(?:db|pg)pass)|(?<=(?:user|smtp|root)pass)"  # noqa: S105 - of names
_NAME = (
    r"[PpSsTtKk](?i:"
    r"(?<=p)(?:(?P<password>ass(?:word|wd|phrase|code)|(?<![a-z]p)wd)|(?P<pass>ass(?:" + _PASS + r")))"
    r"|(?<=s)(?P<secret>ecret(?:[_-]?(?:access[_-]?)?key(?:[_-]?base)?)?)"
    r"|(?<=t)(?P<token>oken)"
    r"|(?<=k)(?P<key>ey(?:" + _KEY + r")))"
    r"(?:[_-]?[0-9]{1,2})?"
)
KINDS = {"password": "password", "pass": "password", "secret": "secret", "token": "token", "key": "api-key"}
SECRET_NAME = re.compile(rf"{_NAME}\Z|(?i:authorization)\Z")
ASSIGNMENT = re.compile(
    rf"(?P<keep>{_NAME}(?:{_QUOTE})?(?P<sign>\s{{0,3}}(?:=>|:=|[:=])\s{{0,3}}))(?:{_QUOTED}|{_BARE})"
)
FLAG = re.compile(
    rf"(?P<keep>-(?<![\w-]-)-?[A-Za-z0-9_-]{{0,40}}?{_NAME}(?P<sign>[ \t]{{1,3}}))(?:{_QUOTED}|{_BARE})", re.ASCII
)
# The same in the cheapest terms, for lower-case text: a word, and how it goes on up to the sign.
_SIGN = r"""[_-]?[0-9]{0,2}(?:\\{0,7}["'`])?\s{0,3}[:=]"""
ASSIGNMENT_HINTS = tuple(
    (word, re.compile(rf"{word}{rest}{_SIGN}"))
    for word, rest in {
        "pass": "(?:word|wd|phrase|code)?",
        "secret": "(?:[_-]?(?:access[_-]?)?key(?:[_-]?base)?)?",
        "token": "",
        "key": f"(?:{_KEY})",
        "pwd": "",
    }.items()
)
FLAG_HINT = re.compile(r"-[a-z]{0,12}[_-]?(?:pass|pwd|secret|token|key)")

OTHER_FLAG = re.compile(
    r"""(?P<keep>(?<=\s)(?:-u|--user)[ =]?["']?[^\s:"']{1,64}:|\bsshpass\s+-p\s*["']?"""
    r"""|-pass(?:in|out)?\s+pass:)(?P<value>[^\s"'\\]{1,256})"""
)

# --- values that are none -------------------------------------------------------------------------

PLACEHOLDER = re.compile(r"[$%<{*].*|\.{2,}.*|[xX*._•-]+|(?:your|my|some|example)[_-].*|\[masked:.*", re.DOTALL)
CODE = re.compile(
    r"(?:self|this|os|process|config|settings|env|args|req|request|ctx|options|opts|params|props|user|data|res|response"
    r"|secrets|import|cls|app|vars|state|event|body|result)\.[A-Za-z_][\w.]*"
)
NUMBER = re.compile(r"[0-9][0-9.,_]*(?:k|m|ms|s|%)?", re.IGNORECASE)
IDENTIFIER = re.compile(r"[A-Za-z_]+")
WORDS = frozenset(
    re.findall(
        r"\w+",
        # literals and types
        "none null nil true false undefined void str string int integer bool boolean bytes any number object optional "
        "secretstr text varchar char float type unknown empty unset "
        # what one says about a secret
        "required missing invalid expired valid revoked rotated hidden redacted masked removed unchanged ok error "
        "failed not is was has are the a an and or for to in on of as at by if it no with from when must should can "
        "may will flag option argument parameter value field instead here this that which",
    )
)
