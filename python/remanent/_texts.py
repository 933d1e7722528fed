"""Texts as UTF-8, and names of objects, which are such texts."""

from __future__ import annotations

from .errors import BadName


def half_character(error: UnicodeEncodeError) -> str:
    """Why a text has no UTF-8: `os.listdir` makes half characters of other bytes."""
    return f"half a character, {error.object[error.start]!r} at {error.start}, which UTF-8 cannot express"


def check_name(name: object) -> str:
    """The name, if it is a text that UTF-8 can express."""
    if not isinstance(name, str):
        raise TypeError(f"a name is a text, not {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise BadName(f"{name!r} cannot be used as a name: it has {half_character(error)}") from None
    return name
