from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.state.builders import World, create


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A state with one channel `a` of uid 1."""
    made = World(tmp_path)
    made.do(create())
    yield made
    made.state.close()
