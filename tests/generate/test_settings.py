"""What a user may and may not ask of generation."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from clearhead.config import build, describe
from clearhead.errors import ConfigError
from clearhead.generate.settings import GenerationConfig


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"strategy": "bean"}, "'strategy' = 'bean': unknown strategy, did you mean 'beam'?"),
        ({"strategy": "greedy", "nbest": 2}, "greedy gives one result, not nbest = 2: use beam or sample"),
        ({"beam_size": 2, "nbest": 3}, "nbest = 3 needs a beam at least as large, not beam_size = 2"),
        ({"min_len": 5, "max_len": 4}, "min_len = 5 is more than max_len = 4"),
        ({"beam": 4}, "unknown key 'beam', did you mean"),
        ({"stop": ["x", ""]}, "an empty text is in every other: say what to stop at"),
        ({"temperature": -1.0}, "'temperature' = -1.0"),
    ],
)
def test_a_wrong_setting_is_explained(tree: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        build(GenerationConfig, tree, "generation")
    assert message in str(error.value)


def test_every_setting_is_documented() -> None:
    assert all(text for _, _, text in describe(GenerationConfig))


def test_the_longest_length_follows_the_source_and_the_model() -> None:
    config = GenerationConfig(max_len_ratio=1.5, max_len_extra=2, max_len=20)
    assert config.max_lens([0, 3, 100], room=50) == [2, 6, 20]
    assert config.max_lens([100], room=10) == [10]


def test_reading_the_settings_needs_no_torch() -> None:
    code = (
        "import sys, clearhead.generate.settings as it; it.GenerationConfig(seed=3); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
