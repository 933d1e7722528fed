"""Names of objects."""

from __future__ import annotations

from .errors import BadName


def check_name(name: object) -> str:
    """The name, if it is a text that UTF-8 can express: `os.listdir` makes half characters of other bytes."""
    if not isinstance(name, str):
        raise TypeError(f"a name is a text, not {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise BadName(f"{name!r} cannot be used as a name: it has half a character, which UTF-8 cannot express") from None
    return name
