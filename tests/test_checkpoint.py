"""Model directories and checkpoints: what comes back is what was saved, or an error that names what is wrong."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

import clearhead
from clearhead.checkpoint import (
    DTYPES,
    PICKLES,
    Checkpoints,
    all_steps,
    best_first,
    describe_model,
    is_whole,
    load_model,
    locate,
    model_tensors,
    read_tensors,
    rewrite_card,
    save_model,
    seal_description,
)
from clearhead.data.batches import Cursor
from clearhead.errors import ConfigError, DataError, MissingInputError, StorageError, WouldOverwriteError
from clearhead.models.translator import Translator, TranslatorConfig
from clearhead.storage import DRAFT, RETIRED, SUMS, write_sums
from clearhead.text.kinds import TokenizerConfig
from clearhead.text.tokenizer import TokenizerPair
from clearhead.training.loop import TrainingState
from clearhead.training.optimizers import OPTIMIZERS, Optimizer, state_tensors

pytestmark = pytest.mark.usefixtures("unchecked")

FILES = {
    "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    "target_tokenizer.json", "target_tokenizer_config.json", "README.md", "training_config.toml", SUMS,
}  # fmt: skip


def new_model(**changes: Any) -> Translator:
    torch.manual_seed(0)
    sizes = {"source_vocab_size": 9, "target_vocab_size": 12, "dim": 8, "ff_dim": 8, "num_heads": 2, "max_len": 8}
    return Translator(TranslatorConfig(**{**sizes, "encoder_layers": 1, "decoder_layers": 1, **changes}))


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    return TokenizerPair.train(TokenizerConfig(kind="char", joint=False), ["eins zwei"], ["one two"])


Save = Callable[[Path], None]


@pytest.fixture
def save(tokenizers: TokenizerPair) -> Save:
    def save(path: Path) -> None:
        settings: dict[str, Any] = {"generation": {"beam_size": 2}, "card": "# Card", "training_config": "a = 1\n"}
        save_model(path, new_model(), tokenizers, **settings, replace=True)

    return save


@pytest.fixture
def saved(tmp_path: Path, save: Save) -> Path:
    save(tmp_path / "model")
    return tmp_path / "model"


def seal(directory: Path) -> None:
    """Write the sums again: what was changed is now wrong, but not damaged."""
    write_sums(directory, [path for path in directory.iterdir() if path.name != SUMS])


def change_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    seal(path.parent)


@contextmanager
def limited_file_size(size: int) -> Iterator[None]:
    """A disk that takes no larger files: a real error from below, whoever writes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# A model directory ---------------------------------------------------------------------------------------------------


def test_a_model_directory_holds_what_it_should(saved: Path) -> None:
    assert {path.name for path in saved.iterdir()} == FILES
    assert json.loads((saved / "config.json").read_text())["format_version"] == 1
    assert (saved / "README.md").read_text() == "# Card"


def test_a_model_takes_the_place_of_another_only_if_that_is_said(saved: Path, tokenizers: TokenizerPair) -> None:
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    with pytest.raises(WouldOverwriteError, match="exists: choose another --out"):
        save_model(saved, new_model(dim=4), tokenizers, generation={}, card="", training_config="")
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    save_model(saved, new_model(dim=4), tokenizers, generation={}, card="", training_config="", replace=True)
    assert load_model(saved).model.config.dim == 4


@pytest.mark.parametrize("dtype", [name for name, dtype in DTYPES.items() if dtype.is_floating_point])
def test_weights_may_be_stored_shorter_and_are_computed_with_in_full(
    tmp_path: Path, tokenizers: TokenizerPair, dtype: str
) -> None:
    model, path = new_model(), tmp_path / "m"
    save_model(path, model, tokenizers, generation={}, card="", training_config="", dtype=dtype)
    assert json.loads((path / "config.json").read_text())["dtype"] == dtype
    assert {tensor.dtype for tensor in load_file(path / "model.safetensors").values()} == {DTYPES[dtype]}
    loaded = model_tensors(load_model(path).model)
    for name, tensor in model_tensors(model).items():
        assert loaded[name].dtype == torch.float32
        assert torch.equal(loaded[name], tensor.to(DTYPES[dtype]).float())


def test_a_number_format_other_than_the_config_says_is_refused(saved: Path) -> None:
    change_json(saved / "config.json", dtype="float16")
    with pytest.raises(
        StorageError, match=r"not in the number format its config\.json names: .* is torch\.float32, not"
    ):
        load_model(saved)


TABLE, NORM = "source_embedding.weight", "decoder.final_norm.weight"


@pytest.mark.parametrize(("dtype", "name"), [("float16", TABLE), ("int8", NORM)])
def test_weights_too_large_for_half_precision_are_refused(
    tmp_path: Path, tokenizers: TokenizerPair, dtype: str, name: str
) -> None:
    model = new_model()
    dict(model.named_parameters())[name].data[0] = 1e6
    with pytest.raises(DataError, match=rf"do not fit into {dtype}: {name} has .* too large; use bfloat16"):
        save_model(tmp_path / "m", model, tokenizers, generation={}, card="", training_config="", dtype=dtype)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("tie", ["none", "target", "all"])
def test_in_int8_every_matrix_has_its_scales_and_a_tied_one_is_stored_once(
    tmp_path: Path, tokenizers: TokenizerPair, tie: str
) -> None:
    model = new_model(tie=tie, source_vocab_size=12)
    save_model(tmp_path / "m", model, tokenizers, generation={}, card="", training_config="", dtype="int8")
    assert json.loads((tmp_path / "m" / "config.json").read_text())["dtype"] == "int8"
    ours, stored = model_tensors(model), load_file(tmp_path / "m" / "model.safetensors")
    table = [name for name, tensor in ours.items() if tensor.shape == (12, 8)]
    assert len(table) == {"none": 3, "target": 2, "all": 1}[tie]
    assert stored.keys() == {*ours, *(f"{name}_scale" for name, tensor in ours.items() if tensor.ndim == 2)}
    for name, tensor in model_tensors(load_model(tmp_path / "m").model).items():
        off = (tensor - ours[name]).abs()
        assert tensor.dtype == torch.float32
        assert (off <= 0.501 * stored[f"{name}_scale"]).all() if tensor.ndim == 2 else off.max() < 1e-3


@pytest.fixture
def in_int8(tmp_path: Path, tokenizers: TokenizerPair) -> Path:
    """A model directory whose matrices are stored in int8."""
    save_model(tmp_path / "m", new_model(), tokenizers, generation={}, card="", training_config="", dtype="int8")
    load_model(tmp_path / "m")
    return tmp_path / "m"


SCALES = f"{TABLE}_scale"


def scales_with(value: float) -> Tensor:
    """Scales of the table, of which the last is this."""
    scales = torch.full((9, 1), 0.01)
    scales[-1] = value
    return scales


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({SCALES: None}, f"{SCALES} is missing"),
        ({SCALES: torch.ones(9)}, f"{SCALES} is torch.float32 (9,), not torch.float32 (9, 1)"),
        ({SCALES: torch.ones(8, 1)}, f"{SCALES} is torch.float32 (8, 1), not torch.float32 (9, 1)"),
        ({SCALES: torch.ones(9, 1).half()}, f"{SCALES} is torch.float16 (9, 1), not torch.float32 (9, 1)"),
        ({SCALES: torch.ones(9, 1).char()}, f"{SCALES} is torch.int8 (9, 1), not torch.float32 (9, 1)"),
        *(
            ({SCALES: scales_with(float(value))}, f"{SCALES} has values that are not finite and above zero")
            for value in ("nan", "inf", "-inf", "-1", "0")
        ),
        ({TABLE: torch.ones(9, 8)}, f"{TABLE} is torch.float32, not torch.int8"),
        ({TABLE: torch.ones(9, 8).half()}, f"{TABLE} is torch.float16, not torch.int8"),
        ({NORM: torch.ones(8)}, f"{NORM} is torch.float32, not torch.float16"),
        ({NORM: torch.ones(8).char()}, f"{NORM} is torch.int8, not torch.float16"),
    ],
)
def test_scales_that_make_no_sense_are_refused(in_int8: Path, changes: dict[str, Tensor | None], said: str) -> None:
    change_tensors(in_int8, lambda tensors: tensors.update(changes))
    with pytest.raises(StorageError) as error:
        load_model(in_int8)
    file = in_int8 / "model.safetensors"
    assert str(error.value) == f"{file} is not in the number format its config.json names: {said}"


def test_scales_without_their_matrix_do_not_fit(in_int8: Path) -> None:
    change_tensors(in_int8, lambda tensors: tensors.update({TABLE: None}))
    with pytest.raises(StorageError, match=rf"1 tensors missing, 1 unknown, 0 of another shape \(first: {TABLE}\)"):
        load_model(in_int8)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_int8_under_the_name_of_a_float_is_refused(in_int8: Path, dtype: str) -> None:
    change_json(in_int8 / "config.json", dtype=dtype)
    with pytest.raises(StorageError, match=rf"config\.json names: .* is torch\.\w+, not torch\.{dtype}"):
        load_model(in_int8)


def test_another_card_leaves_the_rest_whole(saved: Path) -> None:
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    rewrite_card(saved, "# Another\n")
    load_model(saved)
    after = {path.name: path.read_bytes() for path in saved.iterdir()}
    assert {name for name in before if before[name] != after[name]} == {"README.md", SUMS}
    assert after["README.md"] == b"# Another\n" and before.keys() == after.keys()


def test_the_weights_may_be_read_by_whoever_may_read_the_rest(tmp_path: Path, save: Save) -> None:
    before = os.umask(0o022)
    try:
        save(tmp_path / "model")
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "model").iterdir()} == {0o644}


def test_no_single_flipped_bit_loads(saved: Path) -> None:
    """Without sums about half of them would: a weight with one bit changed is a weight."""
    chance = random.Random(0)
    load_model(saved)
    for name in sorted(FILES):
        good = (saved / name).read_bytes()
        for _ in range(25):
            bad = bytearray(good)
            bit = chance.randrange(8 * len(bad))
            bad[bit // 8] ^= 1 << bit % 8
            (saved / name).write_bytes(bad)
            with pytest.raises(StorageError):
                load_model(saved)
        (saved / name).write_bytes(good)
    load_model(saved)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_that_is_cut_off_or_missing_does_not_load(saved: Path, name: str) -> None:
    good = (saved / name).read_bytes()
    for size in (0, len(good) // 2, len(good) - 2):
        (saved / name).write_bytes(good[:size])
        with pytest.raises(StorageError):
            load_model(saved)
    (saved / name).unlink()
    with pytest.raises((StorageError, MissingInputError)):
        load_model(saved)


def change_tensors(saved: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    tensors = load_file(saved / "model.safetensors")
    change(tensors)
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, saved / "model.safetensors")
    seal(saved)


@pytest.mark.parametrize(
    ("change", "counts", "first"),
    [
        (lambda t: t.pop("decoder.final_norm.weight"), (1, 0, 0), "decoder.final_norm.weight"),
        (lambda t: t.update(extra=torch.zeros(1)), (0, 1, 0), "extra"),
        (lambda t: t.update({"source_embedding.weight": torch.zeros(9, 7)}), (0, 0, 1), "source_embedding.weight"),
    ],
    ids=["missing", "unknown", "misshapen"],
)
def test_tensors_that_do_not_fit_are_named(
    saved: Path, change: Callable[..., Any], counts: tuple[int, int, int], first: str
) -> None:
    change_tensors(saved, change)
    with pytest.raises(StorageError) as error:
        load_model(saved)
    missing, unknown, misshapen = counts
    assert str(error.value) == (
        f"{saved / 'model.safetensors'} does not fit this model: {missing} tensors missing, {unknown} unknown, "
        f"{misshapen} of another shape (first: {first})"
    )


@pytest.mark.parametrize("version", [2, 0, "1", None])
def test_another_format_is_refused(saved: Path, version: object) -> None:
    change_json(saved / "config.json", format_version=version)
    with pytest.raises(StorageError) as error:
        load_model(saved)
    assert str(error.value) == f"{saved} has format {version}, this is format 1: use a matching version"


def test_an_unknown_model_is_met_with_the_nearest(saved: Path) -> None:
    change_json(saved / "config.json", kind="tranzlator")
    with pytest.raises(ConfigError) as error:
        load_model(saved)
    assert str(error.value) == "unknown model 'tranzlator': did you mean 'translator'?"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dim": "wide"}, "'dim' = 'wide': input should be a valid integer"),
        ({"dimm": 3}, "unknown key 'dimm', did you mean 'dim'?"),
        ({"norm": "os.system"}, "'norm' = 'os.system': unknown norm, choose from: batch, group, instance, layer, rms"),
        ({"num_heads": -1}, "'num_heads' = -1: input should be greater than or equal to 1"),
    ],
)
def test_a_config_that_makes_no_sense_is_an_error_that_says_where(saved: Path, changes: Any, said: str) -> None:
    change_json(saved / "config.json", **changes)
    with pytest.raises(ConfigError) as error:
        load_model(saved)
    assert str(error.value) == f"{saved / 'config.json'}: {said}"


@pytest.mark.parametrize("rubbish", [b"", b"\xff\x00", b"{]", b"[1]"], ids=repr)
@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"])
def test_rubbish_with_good_sums_is_still_rubbish(saved: Path, name: str, rubbish: bytes) -> None:
    (saved / name).write_bytes(rubbish)
    seal(saved)
    with pytest.raises(StorageError, match=name):
        load_model(saved)


@pytest.mark.parametrize("rubbish", [b"", b"\x00" * 100, b"\xff" * 8 + b"{}", b"PK\x03\x04"], ids=repr)
def test_weights_that_are_no_weights_are_refused(saved: Path, rubbish: bytes) -> None:
    (saved / "model.safetensors").write_bytes(rubbish)
    seal(saved)
    with pytest.raises(StorageError, match=r"model\.safetensors cannot be read: "):
        load_model(saved)


def test_weights_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError) as error:
        read_tensors(tmp_path / "model.safetensors")
    assert str(error.value) == f"there is no {tmp_path / 'model.safetensors'}"


# Nothing is ever unpickled -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", PICKLES)
def test_a_pickle_is_refused_unread(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"cos\nsystem\n(S'touch hacked'\ntR.")
    with pytest.raises(DataError) as error:
        load_model(path)
    assert error.value.exit_code == 65
    assert str(error.value) == (
        f"{path} looks like a pickle, which can run code when read: convert it to safetensors first"
    )


def test_nothing_in_the_source_reads_or_writes_a_pickle() -> None:
    root = Path(clearhead.__file__).parent
    texts = {path: path.read_text(encoding="utf-8") for path in root.rglob("*.py")}
    assert len(texts) > 50
    forbidden = r"\btorch\.(load|save)\(|\b(import|from) (pickle|shelve|joblib|dill|marshal)\b|\bpickle\.\w"
    found = [(path.name, use[0]) for path, text in texts.items() for use in re.finditer(forbidden, text)]
    assert found == []


# A full disk ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, 600, 2000])
def test_a_disk_that_takes_no_more_is_an_error_of_one_line_and_loses_nothing(
    saved: Path, save: Save, size: int
) -> None:
    with limited_file_size(size), pytest.raises(StorageError, match="File too large") as error:
        save(saved)
    assert error.value.exit_code == 74
    load_model(saved)
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_a_full_disk_under_the_tensors_is_named(saved: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **options: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("clearhead.checkpoint.tensors.save_file", full)
    with pytest.raises(StorageError) as error:
        save(saved)
    assert str(error.value) == (
        f"the disk is full: {saved} was not written; free some space and try again (training: with --resume)"
    )
    load_model(saved)


def test_another_complaint_of_the_tensors_is_passed_on(
    saved: Path, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    def complain(*args: Any, **options: Any) -> None:
        raise SafetensorError("something else")

    monkeypatch.setattr("clearhead.checkpoint.tensors.save_file", complain)
    with pytest.raises(StorageError) as error:
        save(saved)
    assert str(error.value) == f"cannot write {saved}: something else"


def test_a_full_disk_under_any_file_loses_nothing(saved: Path, save: Save) -> None:
    write_text, write_bytes = Path.write_text, Path.write_bytes
    for name in sorted(FILES - {"model.safetensors"}):

        def full(path: Path, *args: Any, bad: str = name, write: Any = write_text, **options: Any) -> Any:
            if path.name == bad:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(path, *args, **options)

        with pytest.MonkeyPatch.context() as patch, pytest.raises(StorageError) as error:
            patch.setattr(Path, "write_text", full)
            patch.setattr(Path, "write_bytes", lambda path, data, full=full: full(path, data, write=write_bytes))
            save(saved)
        assert error.value.exit_code == 74
        load_model(saved)
        assert [path.name for path in saved.parent.iterdir()] == ["model"]


# Checkpoints ---------------------------------------------------------------------------------------------------------


class Run:
    """A model that takes steps and saves them."""

    def __init__(self, path: Path, optimizer: str = "adam", keep_last: int = 2, keep_best: int = 1) -> None:
        self.path, self.model = path, new_model()
        self.optimizer: Optimizer = OPTIMIZERS[optimizer](self.model, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.1)
        self.checkpoints = Checkpoints(path, self.model, self.optimizer, keep_last=keep_last, keep_best=keep_best)
        self.best: tuple[float, int] | None = None

    def save(self, step: int, loss: float | None = None) -> TrainingState:
        """Take a step and save it; the best loss so far is the best."""
        self.optimizer.zero_grad()
        self.model(torch.randint(9, (2, 3)), torch.randint(12, (2, 4))).square().mean().backward()
        for group in self.optimizer.param_groups:
            group["lr"] = 0.01
        self.optimizer.step()
        if loss is not None and (self.best is None or loss < self.best[0]):
            self.best = loss, step
        best_loss, best_step = self.best or (None, None)
        state = TrainingState(step, Cursor(step // 3, step % 3), best_loss, best_step, step % 2, step * 1.5)
        self.checkpoints.save(state, loss)
        return state

    @property
    def steps(self) -> list[int]:
        return [int(path.name.removeprefix("step-")) for path in all_steps(self.checkpoints.directory)]

    def link(self, name: str) -> str | None:
        link = self.checkpoints.directory / name
        return str(link.readlink()) if link.is_symlink() else None

    def step_dir(self, step: int) -> Path:
        return self.checkpoints.directory / f"step-{step}"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def test_the_newest_and_the_best_are_kept_and_linked(tmp_path: Path) -> None:
    run = Run(tmp_path, keep_last=2, keep_best=1)
    seen = []
    for step, loss in enumerate([3.0, 1.0, 2.0, 2.5, 0.5, 0.7], start=1):
        run.save(step, loss)
        seen.append((run.steps, run.link("last"), run.link("best")))
    assert seen == [
        ([1], "step-1", "step-1"),
        ([1, 2], "step-2", "step-2"),
        ([2, 3], "step-3", "step-2"),
        ([2, 3, 4], "step-4", "step-2"),
        ([4, 5], "step-5", "step-5"),
        ([5, 6], "step-6", "step-5"),
    ]


def test_several_of_the_best_are_kept(tmp_path: Path) -> None:
    run = Run(tmp_path, keep_last=1, keep_best=3)
    for step, loss in enumerate([5.0, 1.0, 4.0, 2.0, 3.0, 6.0], start=1):
        run.save(step, loss)
    assert run.steps == [2, 4, 5, 6]
    assert [path.name for path in best_first(run.checkpoints.directory)] == ["step-2", "step-4", "step-5", "step-6"]


def test_a_loss_that_is_not_a_number_is_never_among_the_best(tmp_path: Path) -> None:
    run = Run(tmp_path, keep_last=1, keep_best=2)
    for step, loss in enumerate([3.0, float("nan"), 2.0, float("inf"), 1.0, float("nan")], start=1):
        run.save(step, loss)
    assert [path.name for path in best_first(run.checkpoints.directory)] == ["step-5", "step-3"]
    assert run.steps == [3, 5, 6]


def test_checkpoints_between_validations_do_not_push_the_best_out(tmp_path: Path) -> None:
    run = Run(tmp_path, keep_last=2, keep_best=1)
    run.save(1, 1.0)
    for step in range(2, 8):
        run.save(step)
    assert run.steps == [1, 6, 7]
    assert [path.name for path in best_first(run.checkpoints.directory)] == ["step-1"]


def test_steps_are_ordered_as_numbers(tmp_path: Path) -> None:
    run = Run(tmp_path, keep_last=9)
    for step in (9, 10, 100, 99):
        run.save(step)
    assert run.steps == [9, 10, 99, 100]
    assert all_steps(tmp_path / "nowhere") == []


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_everything_comes_back_bit_for_bit(tmp_path: Path, optimizer: str) -> None:
    run = Run(tmp_path, optimizer)
    run.save(1)
    state = run.save(2, 1.5)
    fresh = Run(tmp_path, optimizer)
    restored, notes = fresh.checkpoints.restore()
    assert (restored, notes) == (state, [])
    for one, other in (
        (model_tensors(run.model), model_tensors(fresh.model)),
        (state_tensors(run.optimizer, run.model), state_tensors(fresh.optimizer, fresh.model)),
    ):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


CHECKPOINT_FILES = ["model.safetensors", "optimizer.safetensors", "state.json", SUMS]


@pytest.mark.parametrize("name", CHECKPOINT_FILES)
@pytest.mark.parametrize("damage", [flip, Path.unlink], ids=["flipped", "missing"])
def test_a_damaged_newest_checkpoint_is_passed_over_and_named(run: Run, name: str, damage: Any) -> None:
    before = run.save(1, 1.0)
    weights = {name: tensor.clone() for name, tensor in model_tensors(run.model).items()}
    run.save(2, 0.5)
    damage(run.step_dir(2) / name)
    assert (is_whole(run.step_dir(1)), is_whole(run.step_dir(2))) == (True, False)
    state, notes = run.checkpoints.restore()
    assert state == before
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model_tensors(run.model).items())
    (note,) = notes
    assert str(run.step_dir(2)) in note
    assert note.endswith("; going back to the checkpoint before it")
    assert (run.link("last"), run.link("best")) == ("step-1", "step-1")
    assert (run.checkpoints.directory / "step-2.damaged").is_dir(), "nothing is thrown away"
    run.best = (1.0, 1)
    run.save(2, 2.0)
    assert (run.steps, run.link("last"), run.link("best")) == ([1, 2], "step-2", "step-1")
    assert run.checkpoints.restore()[1] == []


def test_two_damaged_checkpoints_are_passed_over(tmp_path: Path) -> None:
    run = Run(tmp_path, keep_last=3)
    for step in (1, 2, 3):
        run.save(step)
    flip(run.step_dir(3) / "state.json")
    flip(run.step_dir(2) / "model.safetensors")
    state, notes = run.checkpoints.restore()
    assert state.step == 1
    assert ["step-3" in notes[0], "step-2" in notes[1], len(notes)] == [True, True, 2]


def test_a_best_checkpoint_that_is_gone_is_no_longer_linked(tmp_path: Path) -> None:
    run = Run(tmp_path, keep_last=2)
    for step, loss in enumerate([3.0, 2.0, 1.0], start=1):
        run.save(step, loss)
    flip(run.step_dir(3) / "model.safetensors")
    run.checkpoints.restore()
    assert (run.link("last"), run.link("best")) == ("step-2", "step-2")
    flip(run.step_dir(2) / "model.safetensors")
    with pytest.raises(StorageError):
        run.checkpoints.restore()


def test_a_damaged_state_does_not_keep_others_from_being_saved(run: Run) -> None:
    run.save(1, 1.0)
    (run.step_dir(1) / "state.json").write_text("{")
    run.save(2, 2.0)
    assert run.steps[-1] == 2
    assert [path.name for path in best_first(run.checkpoints.directory)] == ["step-2"]


def test_when_no_checkpoint_is_whole_the_newest_problem_is_told_and_nothing_is_touched(run: Run) -> None:
    for step in (1, 2):
        run.save(step)
        flip(run.step_dir(step) / "state.json")
    with pytest.raises(StorageError) as error:
        run.checkpoints.restore()
    assert str(error.value) == (
        f"no checkpoint in {run.checkpoints.directory} is whole: {run.step_dir(2) / 'state.json'} is damaged or "
        f"missing: it does not match {SUMS}; restore it from a copy"
    )
    assert run.steps == [1, 2]


def test_no_checkpoint_at_all_is_a_missing_input(run: Run) -> None:
    with pytest.raises(MissingInputError) as error:
        run.checkpoints.restore()
    assert str(error.value) == f"there is no checkpoint in {run.checkpoints.directory} to go on from"


def test_a_checkpoint_of_another_shape_is_not_taken_for_damage(run: Run) -> None:
    run.save(1)
    run.save(2)
    other = new_model(decoder_layers=2)
    optimizer = OPTIMIZERS["adam"](other, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0)
    with pytest.raises(StorageError, match=r"step-2/model\.safetensors does not fit this model: \d+ tensors missing"):
        Checkpoints(run.path, other, optimizer, keep_last=2, keep_best=1).restore()
    assert (run.steps, run.link("last")) == ([1, 2], "step-2")


def test_a_state_of_another_version_is_named(run: Run) -> None:
    run.save(1)
    change_json(run.step_dir(1) / "state.json", from_the_future=True)
    with pytest.raises(StorageError, match=r"step-1/state\.json is not the state of a run of this version"):
        run.checkpoints.restore()


def test_what_killed_writers_left_is_cleared_away(run: Run) -> None:
    run.save(1)
    directory = run.checkpoints.directory
    for name in (f"step-2{DRAFT}1", f"step-1{RETIRED}1"):
        (directory / name).mkdir()
        (directory / name / "half").touch()
    (directory / f"last{DRAFT}1").symlink_to("step-1")
    run.save(2)
    assert {path.name for path in directory.iterdir()} == {"step-1", "step-2", "last"}


def test_a_full_disk_leaves_the_checkpoint_before(run: Run) -> None:
    state = run.save(1, 1.0)
    with limited_file_size(1000), pytest.raises(StorageError, match="step-2: File too large"):
        run.save(2, 0.5)
    assert (run.steps, run.link("last")) == ([1], "step-1")
    assert run.checkpoints.restore()[0] == state


# Where a model is ----------------------------------------------------------------------------------------------------


@pytest.fixture
def described(run: Run, tokenizers: TokenizerPair) -> Run:
    run.path.mkdir()
    describe_model(run.path, run.model.config, tokenizers, {"beam_size": 2})
    seal_description(run.path)
    return run


def test_a_run_is_its_model_or_else_its_best_or_else_its_last_checkpoint(described: Run, save: Save) -> None:
    run = described
    with pytest.raises(MissingInputError) as error:
        locate(run.path)
    assert str(error.value) == f"{run.path} is neither a model directory nor a run directory with a checkpoint"
    run.save(1)
    assert locate(run.path) == (run.path, run.step_dir(1))
    run.save(2, 1.0)
    run.save(3, 2.0)
    assert locate(run.path) == (run.path, run.step_dir(2))
    assert locate(run.step_dir(3)) == (run.path, run.step_dir(3))
    assert locate(run.checkpoints.directory / "last") == (run.path, run.step_dir(3))
    save(run.path / "model")
    assert locate(run.path) == (run.path / "model", run.path / "model")


def test_a_run_in_progress_can_be_used(described: Run) -> None:
    described.save(1, 1.0)
    stored = load_model(described.path)
    assert stored.generation == {"beam_size": 2}
    for name, tensor in model_tensors(stored.model).items():
        assert torch.equal(tensor, model_tensors(described.model)[name])


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "target_tokenizer.json", "generation_config.json"])
def test_a_flipped_bit_in_the_description_of_a_run_does_not_load(described: Run, name: str) -> None:
    described.save(1, 1.0)
    flip(described.path / name)
    with pytest.raises(StorageError, match=f"{name} is damaged"):
        load_model(described.path)


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError) as error:
        load_model(tmp_path / "nowhere")
    assert str(error.value) == f"there is no model at {tmp_path / 'nowhere'}"
    assert error.value.exit_code == 66


def test_a_run_directory_may_be_called_what_the_user_likes(tmp_path: Path, save: Save) -> None:
    save(tmp_path / "my.bin")
    load_model(tmp_path / "my.bin")
