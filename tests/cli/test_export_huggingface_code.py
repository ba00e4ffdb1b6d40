"""``deepwire export --format huggingface-code``: systems that no class of transformers has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from untrained_models import proven, save_untrained

import deepwire
from deepwire.checkpoint.store import load_model
from deepwire.data.vocabulary import EOS, Vocabularies
from deepwire.errors import ModelError

transformers = pytest.importorskip("transformers")

Text = Mapping[str, Sequence[str]]
FORMAT = "huggingface-code"
STACK = {"layers": 2}
SYSTEMS: dict[str, dict[str, object]] = {
    "depth-wise LSTM": {side: {**STACK, "connection": "depth_lstm"} for side in ("encoder", "decoder")},
    "DLCL with constants": {
        "encoder": {**STACK, "aggregation": {"type": "dlcl", "learned": False}},
        "decoder": {**STACK, "mixer": "average_attention"},
    },
    "a step of two": {"decoder": {**STACK, "mixer": "mhplstm"}, "embeddings": {"tie": "none"}},
}


@pytest.fixture(scope="module", autouse=True)
def _modules(tmp_path_factory: pytest.TempPathFactory) -> object:
    """transformers copies code of folders before it runs it: not into the home of who tests."""
    from transformers import dynamic_module_utils

    patch = pytest.MonkeyPatch()
    patch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules")))
    yield
    patch.undo()


def saved(folder: Path, words: Vocabularies, settings: Mapping[str, object], **metadata: object) -> Path:
    small = {"d_model": 16, "heads": 2, "feed_forward": 32, "encoder": STACK, "decoder": STACK, **settings}
    decoding = {"beam": 3, "length_penalty": 1.1, "max_length_extra": 6}
    return save_untrained(folder, words, small, {"decoding": decoding, **metadata}, likely={EOS: 2})


def opened(folder: Path) -> tuple[Any, Any]:
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True)
    return model, transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_translates_the_same_there(
    name: str, joint: Vocabularies, multi30k: Text, export, tmp_path: Path
) -> None:
    model = saved(tmp_path / "model", joint, SYSTEMS[name], source_bos=name != "depth-wise LSTM")
    errors = export(model)
    assert "trust_remote_code=True" in errors
    proven(tmp_path / "out")
    there, tokenizer = opened(tmp_path / "out")
    lines = list(multi30k["de"][:6])
    batch = tokenizer(lines, return_tensors="pt", padding=True)
    texts = tokenizer.batch_decode(there.generate(**batch), skip_special_tokens=True)
    assert texts == deepwire.load(str(model), precision="fp32").translate(lines)
    more = there.generate(**batch, num_beams=4, num_return_sequences=2, max_new_tokens=3)
    assert (more.size(0), more.size(1) <= 4) == (12, True)


def test_the_loss_of_several_directions_is_that_of_their_scores(
    joint: Vocabularies, multi30k: Text, export, tmp_path: Path
) -> None:
    directions = {"languages": ["de", "en", "fr"], "directions": ["de-en", "de-fr"], "tag": "both"}
    model = saved(tmp_path / "model", joint, {}, source_bos=True, **directions)
    export(model, "--into", "fr")
    there, tokenizer = opened(tmp_path / "out")
    pair = multi30k["de"][0], multi30k["en"][0]
    ours = deepwire.load(str(model), precision="fp32")
    row = tokenizer([pair[0]], text_target=[pair[1]], return_tensors="pt")
    with torch.no_grad():
        for to in ("en", "fr"):
            found = -float(there(**row, to=to).loss) * row["labels"].numel()
            assert found == pytest.approx(next(ours.score([pair], to=to)).log_probability, abs=1e-3)
        with pytest.raises(ValueError, match="one of en, fr"):
            there(**row)
        told = transformers.AutoModelForSeq2SeqLM.from_pretrained(
            tmp_path / "out", trust_remote_code=True, to="fr"
        )
        assert torch.equal(told(**row).loss, there(**row, to="fr").loss)


def test_a_package_that_the_model_needs_is_named(
    joint: Vocabularies, export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deepwire import plugins
    from deepwire.config import choice

    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples" / "plugin"))
    place = "deepwire_example.highway.HighwayConfig"
    tables = [table.others.clear for table in choice._TABLES.values()]
    forget = [plugins._registered.clear, plugins._allowed.clear, *tables]
    try:
        plugins.use("deepwire_example")
        model = saved(tmp_path / "model", joint, {"encoder": {"layers": 1, "connection": place}})
        errors = export(model)
        assert "needs the package deepwire_example there" in errors
        opened(tmp_path / "out")
        for clear in forget:
            clear()
        with pytest.raises(ModelError, match=r"connection .* of package deepwire_example") as refused:
            opened(tmp_path / "out")
        assert "deepwire.plugins.use('deepwire_example')" in refused.value.hint
    finally:
        for clear in forget:
            clear()


@pytest.mark.slow
def test_trainer_trains_it_and_what_it_saves_is_read_again(
    joint: Vocabularies, multi30k: Text, export, tmp_path: Path
) -> None:
    pytest.importorskip("accelerate")
    export(saved(tmp_path / "model", joint, SYSTEMS["DLCL with constants"]))
    model, tokenizer = opened(tmp_path / "out")
    german, english = (list(multi30k[language][:8]) for language in ("de", "en"))
    rows = tokenizer(german, text_target=english)
    assert rows["labels"][0] == [*load_model(tmp_path / "model").vocabularies.target.encode(english[0]), EOS]
    data = [{"input_ids": a, "labels": b} for a, b in zip(rows["input_ids"], rows["labels"], strict=True)]
    arguments = transformers.Seq2SeqTrainingArguments(
        output_dir=str(tmp_path / "trained"),
        max_steps=6,
        per_device_train_batch_size=8,
        learning_rate=0.01,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = transformers.Seq2SeqTrainer(
        model=model,
        args=arguments,
        train_dataset=data,
        data_collator=transformers.DataCollatorForSeq2Seq(tokenizer),
    )
    before = {name: value.clone() for name, value in model.named_buffers()}
    trainer.train()
    losses = [each["loss"] for each in trainer.state.log_history if "loss" in each]
    assert losses[-1] < losses[0]
    trainer.save_model(str(tmp_path / "trained"))
    again, _ = opened(tmp_path / "trained")
    assert before.keys() == dict(again.named_buffers()).keys()
    assert all(torch.equal(value, before[name]) for name, value in again.named_buffers())
    batch = tokenizer(german, return_tensors="pt", padding=True)
    assert torch.equal(again.generate(**batch), model.generate(**batch))
