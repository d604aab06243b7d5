"""Is it a secret that stands where one could? Not so: nothing, a placeholder, a variable, a type, a word in prose."""

from __future__ import annotations

import re

_EMPTY = r"[$%<{*].*|\.{2,}.*|[xX*._•-]+|(?:your|my|some|example)[_-].*|\[masked:.*"
_PLACEHOLDER_IN_JSON = re.compile(_EMPTY, re.DOTALL)
PLACEHOLDER = re.compile(
    rf"{_EMPTY}|[?]+|(?i:your|my|some|insert|enter|replace)[_-].*|(?i:change-?me|redacted)"
    r"|!(?:secret|vault|Ref|Sub|GetAtt|ImportValue|env)\b.*"
    # where the secret is kept is not the secret
    r"|(?i:op|vault|file|env|ssm|arn|sm|kms|awssm|https?|keychain|projects)(?::|/).*",
    re.DOTALL,
)
NUMBER = re.compile(r"[0-9][0-9.,_]*(?:k|m|ms|s|%)?", re.IGNORECASE)
LETTERS = re.compile(r"[A-Za-z_]+")
# An attribute of something that is no secret's name: `form.value`, `e.pw`, `process.env.X`.
_CODE = re.compile(
    r"(?:[A-Za-z]|self|this|os|process|config|settings|env|args|req|request|ctx|context|options|opts|params|props|user"
    r"|data|res|response|resp|secrets|import|cls|app|vars|var|local|state|event|body|result|form|values|value|creds"
    r"|credentials|payload|client|session|account|input|inputs|auth|window|document|module|match|row|item|obj|entry"
    r"|json|headers|cookies|query|cfg|conf|storage|localStorage|sessionStorage)[?!]?\.[A-Za-z_][\w.]*"
)
# What follows a quote that closed: `print("token=" + repr(x))`
_AFTER_QUOTE = re.compile(r"\s+[+%&|,.)?:]|[),;\]}]+(?:\s|\Z|[;,]|\.\w)|\.\w+\(")
_TYPE = re.compile(
    r"[iuf](?:8|16|32|64|128)|(?:var)?char[0-9]*|utf-?8|base64|uuid[0-9]?|sha[0-9]+|argon2\w*|pbkdf2|hs256"
)
# Literals, types, and what one says about a secret: never one, not even under a secret's name in JSON.
_NOTHING = frozenset(
    re.findall(
        r"\w+",
        "none null nil true false undefined void str string int integer bool boolean bytes any number object optional "
        "secretstr text varchar char float type unknown empty unset "
        "required missing invalid expired valid revoked rotated hidden redacted masked removed unchanged ok error "
        "failed not is was has are the a an and or for to in on of as at by if it no with from when must should can "
        "may will flag option argument parameter value field instead here this that which",
    )
)
# Beside these in text, what code and prose go on with.
WORDS = _NOTHING | frozenset(
    re.findall(
        r"\w+",
        "option vec buffer byte never usize blank default yes await new async lambda function return typeof yield fn "
        "func const let var del self this auto manual wrong incorrect correct inherit disabled enabled prompt prompts "
        "stdin options flags arguments parameters switch auth",
    )
)
# What is said of a password: "the password is too short". Beside these, words of these endings.
_SAID = frozenset(
    re.findall(
        r"\w+",
        "too very so still also already only just now then never always being been about above after again all "
        "another bad because before below best better both but case clear common different done due each easy "
        "either else enough even every expected fine first free good great hard hash hashed he her high his how i "
        "its kept known last least less like long longer lost low made me more most much my needed new next nothing "
        "null off old one open our out over part passed past plain plaintext present public rather ready really "
        "right safe same sane secure sent set she short shorter shown simple since sound strict strong stored such "
        "sure taken than their them there these they those through trivial true unique unsafe until up us used "
        "visible weak what where while who why within without written wrong yet you your today read fun gone "
        "something anything",
    )
)
_ENDINGS = ("ed", "ing", "able", "ible", "ly", "less", "ful", "ive", "ent", "ant", "tion", "ty", "ous", "ic", "ary")


def is_secret_in_json(value: str, *, is_password: bool) -> bool:
    """Under a secret's name in JSON nearly everything is one: there it is neither code nor prose."""
    value = value.strip()
    word = value.rstrip(".!?:").lower()
    if not word or word in _NOTHING or "[masked:" in value or _PLACEHOLDER_IN_JSON.fullmatch(value):
        return False
    return is_password or NUMBER.fullmatch(value) is None


def is_secret(value: str, *, is_password: bool, is_quoted: bool, is_prose: bool = False, is_code: bool = False) -> bool:
    """`is_prose`: words follow, so a word is but one of them. `is_code`: a plain name would be a variable's."""
    if is_quoted and _AFTER_QUOTE.match(value):
        return False
    value = value.strip()
    word = value.rstrip(".!?:").lower()
    if word in WORDS or PLACEHOLDER.fullmatch(value) or _TYPE.fullmatch(word):
        return False
    if not is_secret_in_json(value, is_password=is_password) or (len(value) <= 2 and not (is_quoted and is_password)):
        return False
    if is_quoted:
        return True
    if value.startswith(("-", "/", "~", "=", ":")) or _CODE.fullmatch(value):
        return False
    if is_code and LETTERS.fullmatch(word.replace(".", "_")):
        return False
    return not is_prose or (len(value) >= 4 and not LETTERS.fullmatch(word))


def is_said(word: str) -> bool:
    """A word that says something about a password rather than being one."""
    word = word.lower()
    return len(word) < 4 or word in _SAID or word in WORDS or word.endswith(_ENDINGS)


def looks_random(value: str) -> bool:
    """Letters with digits or signs among them, as no word of a language is written."""
    has_letter = any(map(str.isalpha, value))
    has_other = any(not c.isalpha() and c not in "-_.'\u2019/:" for c in value)
    return len(value) >= 4 and has_letter and has_other
