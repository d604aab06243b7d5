"""Passwords on command lines, where a flag of one letter says what they are: `mysql -pX`, `curl -u joe:X`."""

from __future__ import annotations

import re

from sessiond.mask.values import PLACEHOLDER, WORDS

_VALUE = r"""(?P<value>[^\s"'\\|;]{1,256})"""
# A command ends where the shell would end it; within quotes too, since nothing is lost by that.
_COMMAND = re.compile(r"(?:[^\n|;&\\]|\\[\s\S]|&(?!&)|\\\Z)++")
# What the command is called, and where its password stands behind that.
_RULES: tuple[tuple[tuple[str, ...], re.Pattern[str], re.Pattern[str]], ...] = tuple(
    (words, re.compile(name), re.compile(rf"(?P<keep>(?<=\s){flag}[\"']?){_VALUE}"))
    for words, name, flag in (
        (("mysql", "mariadb"), r"\b(?:mysql|mariadb)[\w-]*", "-p"),
        (("mongo",), r"\bmongo[a-z]*\b", r"-p[ =]"),
        (("login",), r"\b(?:docker|podman|nerdctl|buildah|skopeo|oras|crane|registry|az|oc|cf) login\b", r"-p[ =]"),
        (("redis-cli",), r"\bredis-cli\b", r"-a[ =]?"),
        (("sqlcmd", "zip", "bcp"), r"\b(?:sqlcmd|bcp|zip|unzip)\b", r"-P[ ]?"),
        (("7z", "unrar"), r"\b(?:7z[ar]?|unrar)\b", "-p"),
        (("ldap",), r"\bldap[a-z]{2,}\b", r"-w[ ]?"),
        (("sshpass",), r"\bsshpass\b", r"-p\s?"),
        (("smbclient", "rpcclient"), r"\b(?:smbclient|rpcclient)\b", r"-U[ =]?[\"']?[^\s%\"']{1,64}%"),
        (("lftp",), r"\blftp\b", r"-u[ ]?[\"']?[^\s,\"']{1,64},"),
        (
            ("curl", "http"),
            r"\b(?:curl|https?|httpie|xh)(?=\s)",
            r"(?:-u|-U|-a|--user|--proxy-user|--auth)[ =]?[\"']?[^\s:\"'/]{1,64}:",
        ),
        (("curl",), r"\bcurl\b", r"(?:-b|--cookie)[ =]?[\"']?[\w.-]{1,64}="),
        (("htpasswd",), r"\bhtpasswd\b", r"-\w{0,4}b\w{0,4}\s+\S{1,128}\s+\S{1,64}\s+"),
    )
)
_FLAG_HINT = re.compile(r"-(?<=\s-)(?:[puUawPb]|\w{1,3}b|-user|-proxy-user|-auth|-cookie)")
_OPENSSL = re.compile(rf"(?P<keep>-pass(?:in|out)?\s+pass:){_VALUE}")
# A password on its way into another command.
_ECHO = re.compile(
    r"""(?P<keep>\becho\s{1,3}(?:-n\s{1,3})?["']?(?:[\w.-]{1,64}:(?=[^|]{1,128}\|\s{0,3}(?:sudo\s)?chpasswd))?)"""
    r"""(?P<value>[^\s"'|\\]{1,128})(?=["']?\s{0,3}\|\s{0,3}(?:sudo\s{1,3}-\w{0,3}S|(?:sudo\s{1,3})?(?:ch)?passwd\b"""
    r"""|[^\n|]{1,80}-stdin\b))"""
)


def mask_by_command(text: str, low: str) -> str:
    if "-" in text:
        if _FLAG_HINT.search(text) and any(word in low for words, _, _ in _RULES for word in words):
            text = _COMMAND.sub(_mask_command, text)
        if "pass:" in low:
            text = _OPENSSL.sub(_mask_value, text)
    if "|" in text and "echo" in low:
        text = _ECHO.sub(_mask_value, text)
    return text


def _mask_command(match: re.Match[str]) -> str:
    command = match[0]
    for words, name, flag in _RULES:
        if any(word in command for word in words) and (called := name.search(command)):
            command = command[: called.end()] + flag.sub(_mask_value, command[called.end() :])
    return command


def _mask_value(match: re.Match[str]) -> str:
    value = match["value"]
    if PLACEHOLDER.fullmatch(value) or value.lower() in WORDS:
        return match[0]
    if match.re is _ECHO and "sudo" not in match.string and "pass" not in match.string:
        return match[0]
    return f"{match['keep']}[masked:password]"
