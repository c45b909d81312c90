"""Remove passwords and tokens from the URLs in texts for display or logs."""

from __future__ import annotations

import re

_URL = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]*://)"
    r"(?:[^\s/?#@]*:[^\s/?#]*@|(?<=http://)[^\s/?#'\"]*@|(?<=https://)[^\s/?#'\"]*@"
    r"|(?!\[)[^\s/?#@]*:(?!\d*(?:[/?#'\"\s]|$))[^\s'\"]*@)?"  # a password can contain / ? or #, but digits alone are a port
    r"([^\s?'\"]*)(?:\?[^\s'\"]*)?"
)
_NEARLY_URL = re.compile(r"(?<=[:/]/)[^\s/?#'\"@]+:[^\s/?#'\"@]+@")  # for example http:/me:secret@host or http//me:secret@host


def without_secrets(text: str) -> str:
    """Return a text without the user names, passwords and queries in its URLs. Queries can contain tokens.

    >>> without_secrets("read https://me:secret@host/a.tar?token=abc again")
    'read https://host/a.tar again'
    """
    text = _URL.sub(r"\1\2", text) if "://" in text else text
    return _NEARLY_URL.sub("", text) if "@" in text else text
