"""Tiles that a CPU has and does not describe: products must not reach for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from clearhead import tiles
from clearhead.training.precision import is_slow, settled

CPU = "processor\t: {number}\ncpuid level\t: {level}\nflags\t\t: fpu avx512f {flags}\nbugs\t\t:\n\n"


def written(folder: Path, level: int, flags: str) -> Path:
    path = folder / "cpuinfo"
    path.write_text("".join(CPU.format(number=n, level=level, flags=flags) for n in range(200)), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("level", "flags", "hidden"),
    [(28, "amx_bf16 amx_tile", True), (29, "amx_bf16 amx_tile", False), (28, "avx512_bf16", False)],
)
def test_tiles_that_are_not_described_are_left(tmp_path: Path, level: int, flags: str, hidden: bool) -> None:
    environment: dict[str, str] = {}
    tiles.leave_hidden_ones(environment, written(tmp_path, level, flags))
    assert environment == ({tiles.VARIABLE: tiles.WITHOUT_TILES} if hidden else {})
    assert tiles.were_left(environment) is hidden


def test_what_somebody_has_said_of_instructions_is_kept(tmp_path: Path) -> None:
    environment = {tiles.VARIABLE: "DEFAULT"}
    tiles.leave_hidden_ones(environment, written(tmp_path, 28, "amx_tile"))
    assert environment == {tiles.VARIABLE: "DEFAULT"}


@pytest.mark.parametrize(
    "said", ["", "no colon here\n", "flags\t\t: amx_tile\n", "cpuid level\t: many\nflags : amx_tile"]
)
def test_a_kernel_that_says_less_hides_nothing(tmp_path: Path, said: str) -> None:
    assert not tiles.are_hidden(said)
    environment: dict[str, str] = {}
    tiles.leave_hidden_ones(environment, tmp_path / "absent")
    assert environment == {}


def test_bf16_without_its_tiles_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True, "avx512_bf16": True})
    monkeypatch.setenv(tiles.VARIABLE, tiles.WITHOUT_TILES)
    assert is_slow("bf16", torch.device("cpu"))
    assert settled("auto", torch.device("cpu")) == "fp32"


def test_products_in_bf16_end_well_on_this_machine() -> None:
    program = "import clearhead, torch; x = torch.ones(256, 256).bfloat16(); print(float((x @ x).sum()))"
    plain = {name: value for name, value in os.environ.items() if name != tiles.VARIABLE}
    ended = subprocess.run([sys.executable, "-c", program], env=plain, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.strip()) == (0, str(256.0**3)), ended.stderr
