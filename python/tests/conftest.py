"""Places for pools: a disk, where pages become durable, and memory, where lines do."""

import os
import tempfile
from pathlib import Path

import pytest

SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture(params=["disk", "memory"])
def path(request, tmp_path):
    """A path for a pool."""
    if request.param == "disk":
        yield tmp_path / "pool"
        return
    if not os.access(SHARED_MEMORY, os.W_OK):
        # Under CI nobody would notice that half of the tests are left out.
        give_up = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        give_up("there is no shared memory here")
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as folder:
        yield Path(folder) / "pool"
