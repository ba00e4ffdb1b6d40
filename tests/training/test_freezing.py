from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from toy_run import JobMaker, run_training

from deepwire.errors import UsageError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.parametrization import UpdateScale
from deepwire.training.freezing import freeze, with_rate_factors

TINY = {"d_model": 8, "heads": 2, "feed_forward": 8, "encoder": {"layers": 2}, "decoder": {"layers": 1}}


def tiny(**changes: object) -> torch.nn.Module:
    torch.manual_seed(1)
    return build_model(ModelConfig.model_validate({**TINY, **changes}), 12, 12)


def trained_names(model: torch.nn.Module) -> set[str]:
    return {name for name, one in model.named_parameters() if one.requires_grad}


def test_patterns_choose_by_name_and_are_counted_once() -> None:
    model = tiny()
    sizes = {name: one.numel() for name, one in model.named_parameters()}
    found = freeze(model, ["encoder.mixers.0.*", "encoder.*"])
    first = sum(size for name, size in sizes.items() if name.startswith("encoder.mixers.0."))
    whole = sum(size for name, size in sizes.items() if name.startswith("encoder."))
    assert found == {"encoder.mixers.0.*": first, "encoder.*": whole - first}
    assert trained_names(model) == {name for name in sizes if not name.startswith("encoder.")}


def test_a_shared_matrix_may_be_named_by_any_of_its_users() -> None:
    model = tiny(embeddings={"tie": "all"})
    freeze(model, ["head.table.weight"])
    assert not model.source_embedding.table.weight.requires_grad


@pytest.mark.parametrize(
    ("pattern", "near"),
    [("encodr.*", "encoder.*"), ("decoder.mixer.0.*", "decoder.mixers.0.*"), ("xyzzy", "head")],
)
def test_a_pattern_without_a_match_is_refused_with_near_names(pattern: str, near: str) -> None:
    with pytest.raises(UsageError, match="matches no parameter") as caught:
        freeze(tiny(), [pattern])
    assert near in caught.value.hint


def test_frozen_parameters_stay_and_have_no_moments(make_job: JobMaker) -> None:
    patterns = ["encoder.*", "*embedding*"]
    job = make_job("frozen", max_updates=20, freeze=patterns, ema={"decay": 0.9})
    run_training(job, quiet=True)
    torch.manual_seed(job.seed)
    before = dict(job.build().named_parameters())
    folder = job.run.checkpoint_path(20)
    after, kept = load_file(folder / "model.safetensors"), load_file(folder / "optimizer.safetensors")
    frozen = {name for name in before if name.startswith("encoder.") or "embedding" in name}
    same = {name for name in before if torch.equal(before[name].detach(), after[name])}
    assert same == frozen
    assert {name.split(".", 1)[1] for name in kept} == before.keys() - frozen
    log = job.run.log.read_text()
    assert all(f"frozen by {pattern}: " in log for pattern in patterns)


def test_rate_factors_are_those_of_the_last_pattern_and_multiply_what_is_there() -> None:
    model = tiny(embeddings={"tie": "all"})
    scales = {"encoder.connection.final_norm.weight": UpdateScale(rate=0.5, decay=2.0)}
    factors = {"encoder.*": 0.1, "encoder.mixers.1.*": 3.0, "head.table.weight": 2.0}
    chosen = with_rate_factors(scales, model, factors)
    for name, _ in model.named_parameters():
        expected = 1.0
        if name.startswith("encoder."):
            expected = 3.0 if name.startswith("encoder.mixers.1.") else 0.1
        if name == "source_embedding.table.weight":  # the same matrix as that of the head
            expected = 2.0
        assert chosen.get(name, UpdateScale()).rate == pytest.approx(
            expected * scales.get(name, UpdateScale()).rate
        )
    assert chosen["encoder.connection.final_norm.weight"].decay == 2.0


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_the_first_update_is_as_much_larger_as_the_factor(make_job: JobMaker, optimizer: str) -> None:
    """Without decay, Adam's and Muon's first steps are the rate times what the gradient alone decides."""
    changes: list[dict[str, torch.Tensor]] = []
    for run, factors in (("plain", {}), ("factors", {"encoder.mixers.0.*": 4.0})):
        job = make_job(run, max_updates=1, optimizer=optimizer, rate_factors=factors)
        torch.manual_seed(job.seed)
        before = dict(job.build().named_parameters())
        run_training(job, quiet=True)
        after = load_file(job.run.checkpoint_path(1) / "model.safetensors")
        changes.append({name: after[name] - before[name].detach() for name in before})
    plain, larger = changes
    for name, change in plain.items():
        factor = 4.0 if name.startswith("encoder.mixers.0.") else 1.0
        torch.testing.assert_close(larger[name], factor * change, rtol=1e-3, atol=1e-7)
