"""What is a secret for the header, address or cookie it stands in."""

from __future__ import annotations

import re

from sessiond.mask.names import QUOTE
from sessiond.mask.values import LETTERS, PLACEHOLDER, WORDS

_WEBHOOK = re.compile(
    r"(?P<keep>hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/webhooks/[0-9]{5,25}/"
    r"|hooks\.zapier\.com/hooks/catch/|webhook\.office\.com/webhookb2/)(?P<webhook>[\w/@-]{20,}+)",
    re.ASCII,
)
_QUERY = re.compile(
    r"(?P<keep>(?:[?&;]|u0026|, )(?:(?P<sig>sig)|(?:x-(?:amz|goog)-)?signature|hmac|key|auth|access_code|code)=)"
    r"(?P<value>[A-Za-z0-9%+/=_.-]{20,}+)",
    re.IGNORECASE | re.ASCII,
)
# The same in the cheapest terms: only where a "=" stands.
_QUERY_HINT = re.compile(
    r"=(?:(?<=sig=)|(?<=signature=)|(?<=Signature=)|(?<=[?&;6]key=)|(?<=auth=)|(?<=hmac=)|(?<=code=))(?=[\w%+/.=-]{20})"
)

# The last "@" before the path ends the password; people do put an "@" into one.
_URL = re.compile(r"""(?P<keep>://[^\s/?#@:"'<>\\\[]{0,256}:)(?P<value>[^\s/"'<>\\]{1,512})(?=@)""")
_URL_USER = re.compile(r"(?P<keep>://)(?P<value>[A-Za-z0-9_-]{20,256}+)(?=@)")

_AUTHORIZATION = re.compile(
    rf"(?P<keep>authorization(?:{QUOTE})?\s{{0,3}}[:=]\s{{0,3}}(?:{QUOTE})?"
    r"(?P<scheme>(?:bearer|basic|token|digest|negotiate|apikey|ssws|key|jwt|geniekey|flyv1|bot)\s{1,3})?)"
    r"(?P<value>[A-Za-z0-9._~+/=:-]{6,}+)",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(?P<keep>\bbearer\s{1,3})(?P<value>[A-Za-z0-9._~+/=-]{16,}+)", re.IGNORECASE)

_PAIR = r"[\w.$-]{1,128}=[^\s;,\"'`\\<>]*+"
_COOKIE = re.compile(
    rf"(?P<keep>cookie2?(?:{QUOTE})?(?:\s{{0,3}}[:=]\s{{0,3}}|\s)(?:{QUOTE})?)(?P<pairs>{_PAIR}(?:;\s{{0,3}}{_PAIR})*+)",
    re.IGNORECASE,
)
_COOKIE_PAIR = re.compile(r"(?P<name>[\w.$-]{1,128})=(?P<value>[^\s;]++)")
_ATTRIBUTES = frozenset(
    {"path", "domain", "expires", "max-age", "samesite", "priority", "version", "secure", "httponly"}
)


def mask_by_context(text: str, low: str) -> str:
    if "@" in text and "://" in text:
        text = _URL.sub(_mask_url, text)
        text = _URL_USER.sub(_mask_url, text)
    if "/" in text and "hook" in low:
        text = _WEBHOOK.sub(r"\g<keep>[masked:webhook]", text)
    if "=" in text:
        if _QUERY_HINT.search(text):
            text = _QUERY.sub(_mask_query, text)
        if "cookie" in low:
            text = _COOKIE.sub(_mask_cookies, text)
    if "authorization" in low:
        text = _AUTHORIZATION.sub(_mask_authorization, text)
    if "bearer" in low:
        text = _BEARER.sub(_mask_authorization, text)
    return text


def mask_cookie_pairs(text: str) -> str:
    """Every cookie's value of a header's; names and attributes stay, and so do values as short as a setting's."""
    return _COOKIE_PAIR.sub(_mask_cookie, text)


def _mask_cookies(match: re.Match[str]) -> str:
    return match["keep"] + mask_cookie_pairs(match["pairs"])


def _mask_cookie(match: re.Match[str]) -> str:
    name, value = match["name"], match["value"]
    is_setting = len(value) < 6 or value.lower() in WORDS or (LETTERS.fullmatch(value) and len(value) < 12)
    if is_setting or name.lower() in _ATTRIBUTES or PLACEHOLDER.fullmatch(value):
        return match[0]
    return f"{name}=[masked:cookie]"


def _mask_query(match: re.Match[str]) -> str:
    value = match["value"]
    if PLACEHOLDER.fullmatch(value) or not any(map(str.isdigit, value)):
        return match[0]
    return f"{match['keep']}[masked:{'azure-signature' if match['sig'] else 'url-credential'}]"


def _mask_url(match: re.Match[str]) -> str:
    value = match["value"]
    is_user = match.re is _URL_USER
    if PLACEHOLDER.fullmatch(value) or (is_user and not any(map(str.isdigit, value))):
        return match[0]
    return f"{match['keep']}[masked:url-credential]"


def _mask_authorization(match: re.Match[str]) -> str:
    value = match["value"]
    is_wordlike = LETTERS.fullmatch(value.replace("-", "_")) and value in (value.lower(), value.upper())
    is_named = match.re is _BEARER or match["scheme"]
    if is_wordlike or PLACEHOLDER.fullmatch(value) or not (is_named or len(value) >= 16):
        return match[0]  # "Authorization: Bearer token", "Authorization: required"
    return f"{match['keep']}[masked:authorization]"
