from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import ModelError
from deepwire.training.optimizers.optimizer import Adam, AdamConfig, AdamSection, AdamWConfig, Optimizer
from deepwire.training.parallel_strategy import ParallelStrategy
from deepwire.training.testing import check_optimizer

START = [0.5, -0.5, 0.25, 1.0]
GRADIENTS = [
    [0.8032760620117188, 0.00017483338888268918, 8.897809777863586e-08, -6.137180208476423e-10],
    [0.04618244990706444, -0.0013682593125849962, 3.374950949819322e-07, 1.011115857707523e-09],
    [-1.435179352760315, 0.0009774317732080817, 5.220499588176608e-07, 1.2379166580700485e-09],
    [-0.8646355867385864, 0.0002989608619827777, 4.1921865090444044e-07, -7.985432454171715e-11],
    [0.9264108538627625, 0.0008156775729730725, 4.95188999138918e-07, -1.643169766918362e-10],
]
# Parameters after each step of fairseq's Adam and of torch's AdamW: lr 1e-3, betas 0.9 0.98, eps 1e-8.
EXPECTED = {
    ("fairseq", 0.0): [
        [0.49900001287460327, -0.5009995698928833, 0.24944280087947845, 1.0000085830688477],
        [0.4982849061489105, -0.5003493428230286, 0.24870562553405762, 1.0000038146972656],
        [0.4985719919204712, -0.5003069639205933, 0.24789008498191833, 0.99998939037323],
        [0.499050110578537, -0.5003740787506104, 0.24703140556812286, 0.999978244304657],
        [0.4991690516471863, -0.5006599426269531, 0.2461409866809845, 0.9999700784683228],
    ],
    ("torch", 0.0): [
        [0.49900001287460327, -0.500999927520752, 0.24910102784633636, 1.0000578165054321],
        [0.4982849061489105, -0.5003497004508972, 0.24824878573417664, 1.0000355243682861],
        [0.4985719919204712, -0.5003073215484619, 0.2473653107881546, 0.999980092048645],
        [0.499050110578537, -0.500374436378479, 0.24644958972930908, 0.999942421913147],
        [0.4991690516471863, -0.5006603598594666, 0.24551157653331757, 0.9999174475669861],
    ],
    ("fairseq", 0.01): [
        [0.49899500608444214, -0.5009945631027222, 0.2494402974843979, 0.9999985694885254],
        [0.49827492237091064, -0.5003393292427063, 0.24870063364505768, 0.9999838471412659],
        [0.49855703115463257, -0.5002919435501099, 0.24788260459899902, 0.999959409236908],
        [0.4990301728248596, -0.5003540515899658, 0.24702145159244537, 0.9999382495880127],
        [0.49914413690567017, -0.5006349086761475, 0.24612855911254883, 0.9999200701713562],
    ],
    ("torch", 0.01): [
        [0.49899500608444214, -0.5009949207305908, 0.2490985244512558, 1.0000478029251099],
        [0.49827489256858826, -0.500339686870575, 0.2482437938451767, 1.0000154972076416],
        [0.4985570013523102, -0.5002923011779785, 0.2473578304052353, 0.9999500513076782],
        [0.49903011322021484, -0.5003544092178345, 0.2464396357536316, 0.9999023675918579],
        [0.499144047498703, -0.5006353259086609, 0.2454991489648819, 0.9998673796653748],
    ],
}
FINE = torch.tensor(1.0)


def make(values: list[float], config: AdamSection | None = None, clip: float | None = None) -> Optimizer:
    parameters: Any = nn.ParameterDict({"w": torch.tensor(values)})
    strategy = ParallelStrategy(parameters, ProcessGroup())
    named = dict(parameters.named_parameters())
    return Optimizer(named.items(), [Adam(named, config or AdamWConfig(), strategy)], clip, strategy)


def give(optimizer: Optimizer, gradient: list[float]) -> None:
    optimizer.parameters["w"].grad = torch.tensor(gradient)


@pytest.mark.parametrize(("form", "decay"), EXPECTED)
def test_steps_equal_the_reference(form: str, decay: float) -> None:
    config = AdamWConfig.model_validate(
        {"type": "adamw", "betas": (0.9, 0.98), "eps": 1e-8, "eps_form": form, "weight_decay": decay}
    )
    optimizer = make(START, config)
    for gradient, expected in zip(GRADIENTS, EXPECTED[form, decay], strict=True):
        give(optimizer, gradient)
        optimizer.step(1e-3, FINE)
        torch.testing.assert_close(
            optimizer.parameters["w"].detach(), torch.tensor(expected), rtol=0, atol=2e-7
        )


def test_adam_adds_the_decay_to_the_gradient() -> None:
    ours = make(START, AdamConfig(weight_decay=0.1))
    theirs = nn.Parameter(torch.tensor(START))
    reference = torch.optim.Adam([theirs], lr=0.01, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.1)
    for gradient in GRADIENTS:
        give(ours, gradient)
        ours.step(0.01, FINE)
        theirs.grad = torch.tensor(gradient)
        reference.step()
    torch.testing.assert_close(ours.parameters["w"], theirs)


@pytest.mark.parametrize("length", [0.1, 5.0, 50.0])
def test_clipping_equals_torch(length: float) -> None:
    gradient = [length * part for part in (0.6, 0.0, -0.8, 0.0)]
    ours = make(START, clip=1.0)
    theirs = nn.Parameter(torch.tensor(START))
    reference = torch.optim.AdamW([theirs], lr=0.01, betas=(0.9, 0.98), eps=1e-2, weight_decay=0)
    ours = make(START, AdamWConfig(eps=1e-2), clip=1.0)
    give(ours, gradient)
    theirs.grad = torch.tensor(gradient)
    norm = nn.utils.clip_grad_norm_([theirs], 1.0)
    reference.step()
    result = ours.step(0.01, FINE)
    assert float(result.norm) == pytest.approx(float(norm))
    torch.testing.assert_close(ours.parameters["w"], theirs)


@pytest.mark.parametrize("settings", ["adam", {"type": "adamw", "weight_decay": 0.1}, "muon"])
def test_ours_pass_the_checks_of_any(settings: str | dict[str, object]) -> None:
    check_optimizer(settings)


@pytest.mark.parametrize("key", ["exp_avg.other", "momentum.w", "exp_avg.w"])
def test_state_that_does_not_fit_is_refused(key: str) -> None:
    optimizer = make(START)
    state = {**optimizer.state(), key: torch.zeros(3)}
    with pytest.raises(ModelError, match=key):
        optimizer.load_state(state, 1)
    with pytest.raises(ModelError, match=r"exp_avg\.w"):
        optimizer.load_state({}, 1)
