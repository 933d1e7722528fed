"""Pi by the Monte Carlo method, restarted when its two arrays of random numbers are there.

The first use case of Imamura and Yoshida's paper, which has arrays of 8 GB each (a thousand million numbers).

    python examples/monte_carlo_pi.py --size 800 --svg pi.svg
    python examples/monte_carlo_pi.py --size 800 --language r
"""

from __future__ import annotations

import argparse

import numpy as np
import restarts

SEED = 1

#: Numbers that are looked at together, so that what lies between is small beside the data.
STEP = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", type=int, default=80, help="megabytes of each of the two arrays (default: 80)")


def prepare(options: argparse.Namespace) -> restarts.Arrays:
    """The coordinates of random points in a square."""
    random = np.random.default_rng(SEED)
    return {name: random.random(options.size * restarts.MB // 8) for name in ("x", "y")}


def pi(options: argparse.Namespace, points: restarts.Arrays) -> float:
    """Four times the share of the points that lie in the quarter of a circle."""
    x, y = points["x"], points["y"]
    inside = sum(
        int(np.count_nonzero(x[at : at + STEP] ** 2 + y[at : at + STEP] ** 2 <= 1.0)) for at in range(0, len(x), STEP)
    )
    return 4 * inside / len(x)


SCENE = restarts.Scene(
    title="Pi by the Monte Carlo method",
    preparing="generate",
    working="compute",
    add_arguments=add_arguments,
    in_python=restarts.InPython(prepare, pi, data_bytes=lambda options: 2 * options.size * restarts.MB),
    in_r=restarts.InR("monte_carlo_pi.R", settings=lambda options: {"size": options.size}),
)

if __name__ == "__main__":
    restarts.main(SCENE)
