"""What the first process of a team knows in, the same on all of it out: settings, tokenizers, prepared data.

The first one alone reads and writes the run directory. The data are read by one process on each host, so they must lie
on every host, at the same place; the others there open the cache that it has filled.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from clearhead.errors import ConfigError, DataError
from clearhead.run.devices import pick_device
from clearhead.run.settings import RunConfig, build_config, leaves
from clearhead.run.task import Prepared
from clearhead.run.tasks import TASKS
from clearhead.text.tokenizer import TokenizerPair
from clearhead.training import distributed
from clearhead.training.distributed import Team
from clearhead.training.events import Noted, Reading

BEGUN = "begun"
"""Under this name the team remembers, beyond a restart, which run directory it found empty and took."""


def join(device: str = "auto") -> Team:
    """The team that torchrun has started, or a team of one, on the device that a name means."""
    return distributed.join(pick_device(device))


def agree_on(team: Team, config: RunConfig | None) -> RunConfig:
    """The leader's configuration for all of the team; whoever has one of their own must have the same."""
    if team.is_solo:
        assert config is not None
        return config
    tree = team.tell(config.model_dump(mode="json") if config is not None else None)
    with team.agreement():
        theirs = build_config(tree, "the first process's configuration")
        if config is not None and config != theirs:
            raise ConfigError(f"{_difference(config, theirs)}: start every host with the same config")
    return theirs


def _difference(ours: RunConfig, theirs: RunConfig) -> str:
    one, other = (dict(leaves(config.model_dump())) for config in (ours, theirs))
    key = next(key for key in dict.fromkeys([*one, *other]) if one.get(key) != other.get(key))
    return f"here {key} is {one.get(key)!r}, and on rank 0 {other.get(key)!r}"


def continues(team: Team, run: Path) -> bool:
    """Whether the launcher has started the team again after this very team had begun this run."""
    is_ours = team.leads and team.noted(BEGUN) == str(run.resolve()) and (run / "config.toml").is_file()
    return bool(team.tell(is_ours))


def examine_together(
    team: Team, config: RunConfig, found: Any | None, progress: Callable[[Reading], None] | None = None
) -> Any | None:
    """Let one process on each host read the data; what it finds is what the task of this kind of model finds."""
    with team.agreement():
        if found is None and team.leads_host:
            found = TASKS[config.model.kind].examine(config, progress)
        return found


def prepare_together(
    team: Team, config: RunConfig, found: Any | None, tokenizers: TokenizerPair | None = None
) -> Generator[Noted | Reading, None, Prepared]:
    """The leader trains the tokenizers, one process on each host tokenises, and the others open the cache."""
    task = TASKS[config.model.kind]
    prepared: Prepared | None = None
    with team.agreement():
        if team.leads:
            assert found is not None
            prepared = yield from task.prepare(config, found, tokenizers)
    if team.is_solo:
        assert prepared is not None
        return prepared
    words = team.tell(_to_texts(prepared.tokenizers) if prepared and prepared.tokenizers else None)
    ticket = tuple(team.tell(prepared.ticket() if prepared else None))
    with team.agreement():
        tokenizers = _from_texts(words) if words is not None else None
        if prepared is None and found is not None:
            prepared = yield from task.prepare(config, found, tokenizers)
            if prepared.ticket() != ticket:
                raise DataError("the data on this host are not those of rank 0: copy the same files to every host")
    with team.agreement():
        return prepared or task.open_prepared(config, tokenizers, ticket)


def _to_texts(tokenizers: TokenizerPair) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        tokenizers.save(Path(folder))
        return {path.name: path.read_text(encoding="utf-8") for path in Path(folder).iterdir()}


def _from_texts(texts: dict[str, str]) -> TokenizerPair:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            Path(folder, Path(name).name).write_text(text, encoding="utf-8", newline="\n")
        return TokenizerPair.load(Path(folder))
