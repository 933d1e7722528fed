"""What else the machine does meanwhile: waited for, within limits, and told, because a shared machine is never silent."""

from __future__ import annotations

import os
import time
from pathlib import Path

#: Of one CPU; below it the others are taken to be at rest.
REST = 0.2
LOOK_S = 0.25
#: The longest wait before a round: others may be at work for hours.
LIMIT_S = 30.0


class Others:
    """The CPU time of other processes, from /proc/stat (proc_stat(5)), since this was made."""

    def __init__(self) -> None:
        self._since_s = time.monotonic()
        self._begun_s = _others_s()

    def share(self) -> float:
        """How many CPUs they had, on average."""
        return (_others_s() - self._begun_s) / (time.monotonic() - self._since_s)


def wait_for_rest() -> None:
    """Returns when the others are at rest, or at the limit."""
    started = time.monotonic()
    while time.monotonic() - started < LIMIT_S:
        others = Others()
        time.sleep(LOOK_S)
        if others.share() < REST:
            return


def _others_s() -> float:
    words = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    user, nice, system, _idle, _wait, irq, soft_irq, steal = map(int, words[:8])
    all_s = (user + nice + system + irq + soft_irq + steal) / os.sysconf("SC_CLK_TCK")
    return all_s - sum(os.times()[:4])  # this process and those that it has waited for
