"""What every test shares: checked shapes, one torch thread, and the data folder if there is one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook
from tests.shared.shapes import unchecked_shapes

if TYPE_CHECKING:
    from clearhead.run.settings import RunConfig

CHECKED = [
    "clearhead.nn", "clearhead.primer", "clearhead.models", "clearhead.training.losses", "clearhead.generate",
    "clearhead.inspection.record", "clearhead.inspection.measures", "clearhead.inspection.generation",
    "clearhead.inspection.view", "clearhead.inspection.trail", "clearhead.checkpoint.formats",
]  # fmt: skip
# Shapes in signatures are executed: from here on these packages are imported with every tensor's axes checked.
install_import_hook(CHECKED, "beartype.beartype")

# Commands that tests start are as modest as the tests: two threads each on two cores would wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes depends on what else the machine does, so time decides nothing.
settings.register_profile("clearhead", deadline=None)
settings.load_profile("clearhead")


LONG = (
    "training/test_distributed.py", "docs/inspect.ipynb", "journeys/test_page_in_chromium.py",
    "journeys/test_streams.py", "journeys/test_pictures.py", "journeys/test_many_ranks.py",
    "run/test_exporting_kinds.py", "serve/test_schema.py", "journeys/test_notebook_in_jupyterlab.py",
    "serve/test_stress.py", "run/test_kill.py", "export/test_onnx.py",
)  # fmt: skip
"""Files whose tests take a minute or so together."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, so that nobody waits for one at the end; what takes very long only if it is asked for."""
    items.sort(key=lambda item: not item.nodeid.partition("::")[0].endswith(LONG))
    if not os.environ.get("CLEARHEAD_TEST_SLOW"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="takes long: make slow runs it"))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Tests run side by side on few cores, where a second thread waits for the first; some tests ask for more."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or fills the user's own cache."""
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Shapes are not checked, for tests of many steps: each kind of step is checked in other tests."""
    with unchecked_shapes():
        yield


TINY: dict[str, Any] = {
    "data": {"kind": "numbers", "largest": 200, "train_size": 60, "validation_size": 8, "test_size": 8},
    "tokenizer": {"kind": "char"},
    "batches": {"max_tokens": 300},
    "model": {
        "dim": 8, "ff_dim": 16, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.3, "max_len": 64,
    },
    "train": {"steps": 8, "lr": 0.01, "warmup": 4, "validate_every": 4, "log_every": 1},
    "generation": {"strategy": "greedy"},
}  # fmt: skip


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., RunConfig]:
    """A configuration of a run small enough to repeat forty times, changed by `section__key=value`."""
    from clearhead.run.settings import resolve

    def configure(out: str = "run", **changes: Any) -> RunConfig:
        tree = {key: dict(value) for key, value in TINY.items()}
        for name, value in changes.items():
            section, key = name.split("__")
            tree[section][key] = value
        return resolve({**tree, "out": str(tmp_path / out)})

    return configure


@pytest.fixture
def real_data(request: pytest.FixtureRequest) -> Path:
    """The folder of the set named by the `real_data` mark; the test is skipped where there is none."""
    name = request.node.get_closest_marker("real_data").args[0]
    root = os.environ.get("CLEARHEAD_DATA")
    folder = Path(root or "no-data") / name
    if not folder.is_dir():
        pytest.skip(f"needs the {name} set: put it in $CLEARHEAD_DATA/{name}")
    return folder
