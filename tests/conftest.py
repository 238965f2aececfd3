"""What every test shares: checked shapes, one torch thread, and the data folder if there is one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

CHECKED = ["clearhead.nn", "clearhead.primer", "clearhead.models", "clearhead.train.losses", "clearhead.generate"]
# Shapes in signatures are executed: from here on these packages are imported with every tensor's axes checked.
install_import_hook(CHECKED, "beartype.beartype")

# How long an example takes depends on what else the machine does, so time decides nothing.
settings.register_profile("clearhead", deadline=None)
settings.load_profile("clearhead")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Tests run side by side on few cores, and tiny shapes gain nothing from a second thread."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or fills the user's own cache."""
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def real_data(request: pytest.FixtureRequest) -> Path:
    """The folder of the set named by the `real_data` mark; the test is skipped where there is none."""
    name = request.node.get_closest_marker("real_data").args[0]
    root = os.environ.get("CLEARHEAD_DATA")
    folder = Path(root or "no-data") / name
    if not folder.is_dir():
        pytest.skip(f"needs the {name} set: put it in $CLEARHEAD_DATA/{name}")
    return folder
