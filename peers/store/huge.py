"""A tmpfs of 2 MiB pages, the nearest that main memory comes to DAX: mounted for one process, and gone with it."""

from __future__ import annotations

import os
import subprocess
from tempfile import TemporaryDirectory

MOUNT = 'mount -t tmpfs -o huge=always,mode=700 remanent-bench "$1" && shift && exec "$@"'


def run(command: list[str]) -> int:
    """Runs a command with the mount as one more argument; its exit code. OSError says why there can be no mount."""
    with TemporaryDirectory(prefix="remanent-peers-huge-") as folder:
        tried = subprocess.run(_inside(folder, ["true"]), capture_output=True, text=True)
        if tried.returncode != 0:
            raise OSError(tried.stderr.strip().splitlines()[-1])
        return subprocess.run(_inside(folder, [*command, folder])).returncode


def _inside(folder: str, command: list[str]) -> list[str]:
    """The command in a mount namespace of its own; one who is not root is root of a user namespace there."""
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *as_root, "--mount", "sh", "-c", MOUNT, "sh", folder, *command]
