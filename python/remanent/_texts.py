"""Texts as UTF-8, and names of objects, which are such texts."""

from __future__ import annotations

from collections.abc import Callable

from .errors import BadName


def utf_8(text: str, refuse: Callable[[str], Exception]) -> bytes:
    """The bytes of a text. Where it has none, for `os.listdir` makes half characters of other bytes, the exception is
    raised that is made of the reason."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        reason = f"half a character, {text[error.start]!r} at {error.start}, which UTF-8 cannot express"
        raise refuse(reason) from None


def check_name(name: object) -> str:
    """The name, if it is a text that UTF-8 can express."""
    if not isinstance(name, str):
        raise TypeError(f"a name is a text, not {name!r}")
    utf_8(name, lambda reason: BadName(f"{name!r} cannot be used as a name: it has {reason}"))
    return name
