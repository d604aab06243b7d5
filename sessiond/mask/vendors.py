r"""Tokens that are known by how they begin: one row for each shape, and from the same rows the cheap test in front.

Every pattern is linear: runs are possessive, and whatever may fail late is bounded. A shape with its beginning at a
separator (`ghp_`, `sk-`, `hvs.`) costs clean text nothing to speak of: the test looks at the separators only.
"""

from __future__ import annotations

import re
from itertools import groupby

_WORD = r"[A-Za-z0-9]"
_URL64 = r"[\w-]"

# label, how it may begin, how it goes on. The first row that fits wins, so the longer beginning comes first.
_SHAPES: tuple[tuple[str, str, str], ...] = (
    ("anthropic-key", "sk-ant-", rf"{_URL64}{{16,}}+"),
    ("openrouter-key", "sk-or-", rf"{_URL64}{{20,}}+"),
    ("openai-key", "sk- sess-", rf"{_URL64}{{20,}}+"),
    ("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", rf"{_WORD}{{20,}}+"),
    ("github-token", "github_pat_", rf"{_WORD}{{16}}\w*+"),
    (
        "gitlab-token",
        "glpat- gldt- glrt- glrtr- glptt- glcbt- glft- glsoat- glimt- glagent- glwt- gloas- glffct-",
        rf"{_URL64}{{16,}}+(?:\.{_URL64}++){{0,3}}",
    ),
    ("bitbucket-token", "ATBB", rf"{_WORD}{{28,}}+"),
    ("atlassian-token", "ATATT3 ATCTT3 ATSTT3", r"[\w=+/-]{40,}+"),
    ("slack-token", "xoxb- xoxp- xoxa- xoxr- xoxs- xoxc- xoxd- xoxe- xoxo- xapp- xwfp-", r"[A-Za-z0-9%-]{10,}+"),
    ("slack-token", "xoxe.", r"xox[a-z]-[A-Za-z0-9-]{10,}+"),
    # The secret beside its id, as in `AKIA...,wJalr...`, goes with it.
    ("aws-key", "AKIA ASIA ABIA ACCA", r"[A-Z0-9]{16}(?![A-Za-z0-9])(?:[\s,;:|\"']{1,4}[A-Za-z0-9/+]{40}(?![\w/+=]))?"),
    ("aws-key", "ABSK", r"[A-Za-z0-9+/]{60,}+=*+"),
    ("google-key", "AIza", rf"{_URL64}{{30,}}+"),
    ("google-key", "AQ.", rf"Ab{_URL64}{{36,}}+"),
    ("google-token", "ya29.", r"[\w.-]{20,}+"),
    ("google-token", "1//", rf"0{_URL64}{{24,}}+"),
    ("google-key", "GOCSPX-", rf"{_URL64}{{20,}}+"),
    ("stripe-key", "sk_live_ sk_test_ rk_live_ rk_test_ sk_org_live_ sk_org_test_", rf"{_WORD}{{16,}}+"),
    ("stripe-key", "whsec_", r"[A-Za-z0-9]{16}[A-Za-z0-9+/=]*+"),
    ("elevenlabs-key", "sk_", r"[a-f0-9]{40,}+(?!\w)"),
    ("npm-token", "npm_", rf"{_WORD}{{30,}}+"),
    ("pypi-token", "pypi-", rf"{_WORD}{{16}}{_URL64}{{16,}}+"),
    ("rubygems-token", "rubygems_", r"[a-f0-9]{32,}+"),
    ("cargo-token", "cio", rf"{_WORD}{{32}}(?!\w)"),
    ("nuget-key", "oy2", r"[a-z0-9]{43}(?!\w)"),
    ("docker-token", "dckr_pat_ dckr_oat_", rf"{_URL64}{{20,}}+"),
    ("huggingface-token", "hf_", rf"{_WORD}{{20,}}+"),
    ("huggingface-token", "api_org_", rf"{_WORD}{{30,}}+"),
    ("xai-key", "xai-", rf"{_WORD}{{20,}}+"),
    ("groq-key", "gsk_", rf"{_WORD}{{20,}}+"),
    ("perplexity-key", "pplx-", rf"{_WORD}{{20,}}+"),
    ("replicate-token", "r8_", rf"{_WORD}{{20,}}+"),
    ("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", r"[a-f0-9]{32,}+"),
    ("cloudflare-token", "cfut_ cfat_ cfk_", rf"{_WORD}{{30,}}+"),
    ("cloudflare-token", "v1.0-", r"[a-f0-9]{24}-[a-f0-9]{100,}+"),
    ("vercel-token", "vcp_ vck_ vci_ vca_ vcr_", rf"{_WORD}{{20,}}+"),
    ("vercel-token", "vercel_blob_rw_", r"\w{24,}+"),
    ("netlify-token", "nfp_ nfc_ nfo_ nfu_ nfb_", rf"{_WORD}{{30,}}+"),
    ("heroku-key", "HRKU-", rf"{_URL64}{{30,}}+"),
    ("fly-token", "fm2_ fm1r_ fm1a_", r"[\w+/-]{40,}+=*+(?:,fm[12][ar]?_[\w+/-]++=*+)*+"),
    ("fly-token", "fo1_", rf"{_URL64}{{30,}}+"),
    ("supabase-key", "sbp_ sb_secret_", rf"{_WORD}{{20}}{_URL64}*+"),
    ("planetscale-token", "pscale_tkn_ pscale_pw_ pscale_oauth_", r"[\w=.-]{28,}+"),
    ("neon-key", "napi_", rf"{_WORD}{{40,}}+"),
    ("neon-key", "npg_", rf"{_WORD}{{12,}}+"),
    ("databricks-token", "dapi", r"[a-f0-9]{32}(?:-[0-9]{1,2})?(?!\w)"),
    ("sentry-token", "sntrys_ sntryu_ sntrya_ sntryi_", r"[\w+/=-]{40,}+"),
    ("newrelic-key", "NRAK- NRJS- NRII- NRSP- NRRA-", rf"{_URL64}{{16,}}+"),
    ("grafana-token", "glsa_ glc_", r"[\w+/-]{20,}+=*+"),
    ("linear-key", "lin_api_ lin_oauth_ lin_wh_", rf"{_WORD}{{20,}}+"),
    ("notion-token", "ntn_", rf"{_WORD}{{20,}}+"),
    ("notion-token", "secret_", rf"{_WORD}{{43}}(?!\w)"),
    ("figma-token", "figd_ figo_ figu_ figor_ figoh_", rf"{_URL64}{{20,}}+"),
    ("shopify-token", "shpat_ shpca_ shppa_ shpss_ shpua_", rf"{_WORD}{{20,}}+"),
    ("square-token", "sq0atp- sq0csp-", rf"{_URL64}{{20,}}+"),
    ("square-token", "EAAA", rf"(?<![/+]EAAA){_URL64}{{56,}}+"),
    ("facebook-token", "EAA", r"(?<![/+]EAA)[A-Z][A-Za-z0-9]{80,}+"),
    ("sendgrid-key", "SG.", rf"{_URL64}{{16,}}+\.{_URL64}{{16,}}+"),
    ("mailgun-key", "key-", r"[a-f0-9]{32}(?!\w)"),
    ("brevo-key", "xkeysib- xsmtpsib-", r"[a-f0-9]{40,}+(?:-\w++)?"),
    ("resend-key", "re_", r"[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}+"),
    ("twilio-key", "SK", r"[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("vault-token", "hvs. hvb. hvr.", rf"{_URL64}{{20,}}+"),
    ("doppler-token", "dp.pt. dp.st. dp.sa. dp.ct. dp.scim. dp.audit.", r"[\w.-]{30,}+"),
    ("age-key", "AGE-SECRET-KEY-1 AGE-PLUGIN-", r"[A-Z0-9-]{40,}+"),
    ("onepassword-token", "ops_eyJ", r"[\w+/-]{40,}+=*+"),
    ("jfrog-token", "AKCp cmVmdGtu", rf"{_WORD}{{50,}}+"),
    ("alibaba-key", "LTAI", rf"(?<![/+]LTAI){_WORD}{{12,}}+"),
    ("twitter-token", "AAAAAAAAAAAAAAAAAAAAA", r"[\w%]{60,}+"),
    ("launchdarkly-key", "sdk- api-", r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"),
    # What has no name of its own here: data stores, builders, search and model vendors.
    (
        "api-key",
        ("lsv2_pt_ lsv2_sk_ pcsk_ tgp_v1_ fw_ jina_ e2b_ wandb_v1_ sgp_ bkua_ tfp_ CCIPAT_ CCIPRJ_ CLOJARS_ ops_ pnu_ "
        "rdme_ tvly- csk- nvapi- fc- pul- PMAK- CFPAT- ctx7sk- phx_ phc_ sl.B sl.u. bb_live_"),
        rf"{_WORD}{{16}}{_URL64}{{4,}}+",
    ),
    ("gitlab-token", "GR1348941", r"[\w-]{20,}+"),
    ("airtable-token", "pat", r"[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    ("jwt", "eyJ", r"[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+){0,3}"),
    # A PEM file in base64, but not a certificate or a public key.
    ("private-key", "LS0tLS1CRUdJTi", r"(?!BDRVJUSUZJQ0FUR|BQVUJMSUMg)[A-Za-z0-9+/]{8,}+=*+"),
    ("tailscale-key", "tskey-", r"[a-z]{3,10}-[A-Za-z0-9-]{16,}+"),
)  # fmt: skip

# What does not begin with anything fixed.
_HEX = "[0-9a-f]"
_UNFIXED: tuple[tuple[str, str], ...] = (
    ("azure-key", r"[A-Za-z0-9_~.]{3}[0-9]Q~[\w.~-]{31,}+"),
    ("discord-token", r"[MNO][A-Za-z0-9_-]{23,27}\.[\w-]{6}\.[\w-]{27,}+"),
    ("terraform-token", r"[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{40,}+"),
    ("mailchimp-key", rf"{_HEX}{{32}}-us[0-9]{{1,2}}(?!\w)"),
    ("mailgun-key", rf"{_HEX}{{32}}-{_HEX}{{8}}-{_HEX}{{8}}(?!\w)"),
    ("newrelic-key", rf"(?:{_HEX}{{36}}|{_HEX}{{4}}xx{_HEX}{{30}})NRAL"),
    ("telegram-token", r"[0-9]{8,10}:AA[\w-]{30,}+"),
)

# A token begins where a word begins. What looks like a letter before it may be the end of an escape: "\n" in text that
# holds JSON, "%3D" in an address, a colour on a terminal.
_START = (
    r"(?:(?<![A-Za-z0-9_-])|(?<=[/.]bot)|(?<=\\[nrt])|(?<=%[0-9A-F]{2})|(?<=\\u00[0-9a-f]{2})"
    r"|(?<=\[[0-9]m)|(?<=\[[0-9]{2}m))"
)
_BEGINNINGS = tuple((each, label, body) for label, each_of, body in _SHAPES for each in each_of.split())


def _by_first_letter() -> str:
    """One branch for each letter: `re` passes over a branch whose first letter is another at no cost."""
    branches: dict[str, list[str]] = {}
    for beginning, _, body in _BEGINNINGS:
        branches.setdefault(beginning[0], []).append(f"{re.escape(beginning[1:])}(?:{body})")
    return "|".join(f"{letter}(?:{'|'.join(rest)})" for letter, rest in branches.items())


# Behind a hyphen or an underscore (a branch `wip-ghp_...`, a tool `mcp__ghp_...`) only a beginning counts that is no
# word of any language. There its underscores may be hyphens: agents name folders after paths, `/w/ghp_` is `-w-ghp-`.
_NO_WORDS = (
    "sk-ant-", "sk-proj-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "AKIA",
    "ASIA", "AIza", "GOCSPX-", "sk_live_", "rk_live_", "npm_", "pypi-", "dckr_pat_", "hf_", "xai-", "gsk_", "pplx-",
    "nvapi-", "lsv2_pt_", "dop_v1_", "shpat_", "glsa_", "ntn_", "figd_",
)  # fmt: skip
_ROWS_GLUED = [
    (each, *next((label, body) for start, label, body in _BEGINNINGS if each.startswith(start))) for each in _NO_WORDS
]
_GLUED_SHAPES = "|".join(f"{re.escape(each).replace('_', '[_-]')}(?:{body})" for each, _, body in _ROWS_GLUED)
_GLUED = re.compile(rf"(?<=[_-])(?:{_GLUED_SHAPES})\w*+", re.ASCII)

# What is glued to a token goes with it: else masking again would find a beginning laid bare there.
_TOKEN = re.compile(rf"{_START}(?:{_by_first_letter()}|{'|'.join(body for _, body in _UNFIXED)})\w*+", re.ASCII)


def _after(separator: str, also: str = "") -> re.Pattern[str]:
    """Finds the separators that end the beginning of a shape. By width, for a lookbehind has but one."""
    glued = {each.replace("_", "-") for each in _NO_WORDS}
    ends = sorted({each for each in (*glued, *(row[0] for row in _BEGINNINGS)) if each.endswith(separator)})
    ends.sort(key=len)
    looks = [f"(?<={'|'.join(map(re.escape, same))})" for _, same in groupby(ends, key=len)]
    return re.compile(rf"{re.escape(separator)}(?:(?=[\w+/.=%-]{{10}})(?:{'|'.join(looks)}){also})")


def _around(letter: str) -> re.Pattern[str]:
    """Finds the beginnings that hold the letter and end in no separator."""
    looks = []
    for each in (each for each, _, _ in _BEGINNINGS if each[-1] not in "_-."):
        before, found, rest = each.partition(letter)
        if found:
            looks.append(f"(?<={re.escape(before + letter)}){re.escape(rest)}")
    return re.compile(f"{letter}(?:{'|'.join(sorted(set(looks)))}|(?<=:A)A|(?<=NRA)L)")


_AFTER_UNDERSCORE = _after("_", "|(?<=ops_)eyJ")
_AFTER_HYPHEN = _after("-", rf"|us[0-9]{{1,2}}(?!\w)|(?<={_HEX}{{32}}-){_HEX}{{8}}-")
_AFTER_DOT = _after(".", r"|[\w-]{6}\.[\w-]{27}|atlasv1\.|(?<=sl\.)[Bu]|[0-9a-f]{64}|0-[a-f0-9]{24}-")
_AROUND_A = _around("A")
# The rest of the beginnings: a letter that is rare enough to ask for first, the beginning, and how it must go on.
_REST = tuple(
    (letter, beginning, re.compile(beginning + rest))
    for letter, beginning, rest in (
        ("J", "eyJ", r"[\w-]{8}"),
        ("~", "Q~", ""),
        ("K", "SK", "[0-9a-f]{32}"),
        ("C", "LS0tLS1CRUdJTi", ""),
        ("9", "GR1348941", ""),
        ("/", "1//0", ""),
        ("2", "oy2", "[a-z0-9]{43}"),
        ("a", "dapi", "[a-f0-9]{32}"),
        ("c", "cio", "[A-Za-z0-9]{32}"),
        ("V", "cmVmdGtu", ""),
    )
)


def may_hold_token(text: str) -> bool:
    """Cheap, and never False for text that holds a token."""
    if "_" in text and _AFTER_UNDERSCORE.search(text):
        return True
    if "-" in text and _AFTER_HYPHEN.search(text):
        return True
    if "." in text and _AFTER_DOT.search(text):
        return True
    if "A" in text and _AROUND_A.search(text):
        return True
    for letter, beginning, whole in _REST:  # noqa: SIM110 - any() would take twice the time
        if letter in text and beginning in text and whole.search(text):
            return True
    return False


def mask_tokens(text: str) -> str:
    text = _TOKEN.sub(_mask_token, text)
    return _GLUED.sub(_mask_glued, text)


# What a page of documentation puts in a token's place.
_SAMPLE = re.compile(r"[xX]{6}")
_LONGEST_WORD = 15
_LETTER, _DIGIT = re.compile("[A-Za-z]"), re.compile("[0-9]")


def _mask_token(match: re.Match[str]) -> str:
    token = match[0]
    if _SAMPLE.search(token) or _is_name(token):
        return token
    return f"[masked:{_label_of(token)}]"


def _mask_glued(match: re.Match[str]) -> str:
    """Only what mixes letters and digits: a name that goes on like this is none of ours to hide."""
    token = match[0]
    if _SAMPLE.search(token) or _is_name(token) or not (_LETTER.search(token[4:]) and _DIGIT.search(token[4:])):
        return token
    spelled = token.replace("_", "-")
    label = next(label for each, label, _ in _ROWS_GLUED if spelled.startswith(each.replace("_", "-")))
    return f"[masked:{label}]"


def _label_of(token: str) -> str:
    fixed = (label for beginning, label, _ in _BEGINNINGS if token.startswith(beginning))
    return next(fixed, None) or next(label for label, shape in _UNFIXED if re.match(shape, token, re.ASCII))


def _is_name(token: str) -> bool:
    """`sk-learn-something-or-other` is one: words with something between them, no digit, no capital inside a word."""
    parts = re.split("[^A-Za-z0-9]+", token[4:])
    return len(parts) > 1 and all(
        not part or (part.isalpha() and len(part) <= _LONGEST_WORD and (part[1:] == part[1:].lower() or part.isupper()))
        for part in parts
    )
