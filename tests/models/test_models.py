import copy
import inspect
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap

from topofl import models
from topofl.engine.gradients import image_order
from topofl.engine.model_checks import check_model

EVERY = [
    getattr(models, name)
    for name in models.__all__
    if name not in ("lora", "of_kinds", "with_group_norm")
]
FLAT = (models.logistic_regression, models.mlp)
OF_IMAGES = [build for build in EVERY if build not in (*FLAT, models.mnist1d_cnn)]
SMALLEST = {"gn_lenet": 15, "resnet18_gn": 8}
"""Sides of the smallest images that networks take, where it is not 16."""


def count(module):
    return sum(p.numel() for p in module.parameters())


def shape_of(build):
    if build is models.mnist1d_cnn:
        return 1, 3
    side = SMALLEST.get(build.__name__, 16)
    return (1, 64) if build in FLAT else (3, side, side)


def small(build):
    """Return the network for the smallest images that it takes."""
    return build(64 if build in FLAT else shape_of(build), 4)


@pytest.mark.parametrize(
    ("body", "head", "model"),
    [
        (0, 7850, models.logistic_regression()),
        (16768, 650, models.mlp(196)),
        (3950, 1260, models.mnist1d_cnn()),
        (85354 - 5770, 5770, models.gn_lenet()),
        (80554 - 2570, 2570, models.gn_lenet((1, 28, 28))),
        (61156, 850, models.dpfl_cnn()),
        (37586 - 1010, 1010, models.dpfl_femnist_cnn()),
        (42838 - 6262, 6262, models.dpfl_femnist_cnn(n_classes=62)),
        (878538 - 5130, 5130, models.fedavg_cnn()),
        (6603710 - 127038, 127038, models.fedavg_cnn((1, 28, 28), 62, hidden=2048, padding=2)),
        (11168832, 5130, models.resnet18_gn()),
        (11168832, 51300, models.resnet18_gn(n_classes=100)),
        (11168832, 102600, models.resnet18_gn((3, 64, 64), 200)),
    ],
)
def test_parameter_counts_of_the_papers(body, head, model):
    assert (count(model) - count(model.head), count(model.head)) == (body, head)


@pytest.mark.parametrize("build", OF_IMAGES)
@pytest.mark.parametrize("larger", [(0, 0), (1, 25)])
def test_networks_take_their_shape(build, larger):
    channels, side, _ = shape_of(build)
    shape = (channels - larger[0], side + larger[0], side + larger[1])
    assert build(shape, 7)(torch.zeros(2, *shape)).shape == (2, 7)


def test_the_network_of_signals_takes_their_length_and_its_channels():
    model = models.mnist1d_cnn((2, 17), 7, channels=4)
    assert model(torch.zeros(3, 2, 17)).shape == (3, 7)
    assert model.conv1.weight.shape == (4, 2, 5)
    assert [layer.stride for layer in (model.conv1, model.conv2, model.conv3)] == [(2,)] * 3


@pytest.mark.parametrize("build", EVERY)
def test_networks_can_be_stacked_and_looped(build):
    nodes = [check_model(small(build)) for _ in range(3)]
    generator = torch.Generator().manual_seed(0)
    for node in nodes:
        for p in node.parameters():
            p.data.add_(torch.randn(p.shape, generator=generator), alpha=0.05)
    parameters, _ = stack_module_state(nodes)
    x = torch.randn(3, 2, *shape_of(build), generator=generator)

    def loss(own, inputs):
        return functional_call(nodes[0], own, (inputs,)).square().sum()

    together = vmap(grad(loss))(parameters, x)
    for i, node in enumerate(nodes):
        alone = torch.autograd.grad(node(x[i]).square().sum(), list(node.parameters()))
        for (name, stacked), g in zip(together.items(), alone, strict=True):
            scale = g.abs().max().clamp_min(1e-3)
            assert ((stacked[i] - g).abs().max() / scale) < 1e-4, name


@pytest.mark.parametrize("build", OF_IMAGES)
def test_networks_take_images_with_channels_last(build):
    model = small(build)
    x = torch.randn(2, *shape_of(build), generator=torch.Generator().manual_seed(0))
    order = image_order(model, x)
    assert order(x).is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(model(order(x)), model(x), rtol=1e-4, atol=1e-5)


def test_resnet_starts_with_the_identity_where_its_blocks_are_silent():
    model = models.resnet18_gn((3, 8, 8), groups=4)
    quiet = copy.deepcopy(model.stage1)
    for block in quiet:
        nn.init.zeros_(block.norm2.weight)
        nn.init.zeros_(block.norm2.bias)
    x = torch.rand(1, 64, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(quiet(x), x)
    strides = [model.get_submodule(f"stage{i}.0.conv1").stride for i in (1, 2, 3, 4)]
    assert strides == [(1, 1), *[(2, 2)] * 3]
    assert len(model.stage1[0].shortcut) == 0
    assert {m.num_groups for m in model.modules() if isinstance(m, nn.GroupNorm)} == {4}


def test_gn_lenet_pools_before_normalizing_in_the_first_block_only():
    order = [name.rstrip("123") for name, _ in models.gn_lenet().named_children()]
    block = ["conv", "norm", "pool", "relu"]
    assert order == ["conv", "pool", "norm", "relu", *block, *block, "flatten", "head"]


@pytest.mark.parametrize("build", EVERY)
def test_head_is_the_last_layer_and_global_generator_stays(build):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    built = small(build)
    assert torch.equal(before, torch.get_rng_state())
    assert list(dict(built.named_parameters()))[-2:] == ["head.weight", "head.bias"]


@pytest.mark.parametrize("build", EVERY)
def test_sizes_have_the_names_that_configurations_fill_in(build):
    given = {"in_features", "in_shape", "n_classes"} & set(inspect.signature(build).parameters)
    assert given in ({"in_features", "n_classes"}, {"in_shape", "n_classes"})


def with_norms():
    """Return a network with every kind of layer that is replaced, and with one that is not."""
    model = nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(3, 12, 3),
            first=nn.BatchNorm2d(12, eps=1e-3),
            inner=nn.Sequential(nn.SyncBatchNorm(12)),
            instance=nn.InstanceNorm2d(12, affine=True, track_running_stats=True),
            plain=nn.InstanceNorm2d(12),
            flatten=nn.Flatten(2),
            third=nn.BatchNorm1d(12, affine=False),
        )
    )
    for k, parameter in enumerate(model.parameters()):
        nn.init.constant_(parameter, k + 0.5)
    return model


def test_group_norm_replaces_layers_with_statistics():
    model = with_norms().double()
    model.first.weight.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    state = torch.get_rng_state()
    twin = models.with_group_norm(model, groups=4)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert isinstance(model.first, nn.BatchNorm2d)
    replaced = [name for name, m in twin.named_modules() if isinstance(m, nn.GroupNorm)]
    assert replaced == ["first", "inner.0", "instance", "third"]
    assert isinstance(twin.plain, nn.InstanceNorm2d)
    assert {m.num_groups for m in twin.modules() if isinstance(m, nn.GroupNorm)} == {4}
    own = dict(model.named_parameters())
    assert list(dict(twin.named_parameters())) == list(own)
    for name, parameter in twin.named_parameters():
        assert torch.equal(parameter, own[name])
        assert parameter.data_ptr() != own[name].data_ptr()
        assert parameter.dtype == own[name].dtype
        assert parameter.requires_grad == own[name].requires_grad
    assert (twin.first.eps, twin.third.affine) == (1e-3, False)
    assert not list(twin.buffers())


def test_group_norm_computes_what_torch_does_and_takes_one_example():
    model = models.with_group_norm(nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6)), groups=3)
    nn.init.uniform_(model[1].weight, generator=torch.Generator().manual_seed(1))
    x = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    wanted = nn.functional.group_norm(model[0](x), 3, model[1].weight, model[1].bias)
    torch.testing.assert_close(model(x), wanted, rtol=0, atol=0)
    assert check_model(model) is not model


ROWS = [(64, 32, 32), (48, 32, 24), (48, 20, 16), (36, 5, 4), (8, 32, 4)]
ROWS += [(7, 7, 1), (2, 2, 1), (1, 5, 1), (30, 4, 3)]


@pytest.mark.parametrize(("channels", "groups", "got"), ROWS)
def test_groups_divide_channels_and_have_two_of_them(channels, groups, got):
    made = models.with_group_norm(nn.BatchNorm2d(channels), groups=groups)
    assert isinstance(made, nn.GroupNorm)
    assert (made.num_groups, made.num_channels) == (got, channels)


def test_a_shared_layer_stays_shared():
    norm = nn.BatchNorm1d(4)
    twin = models.with_group_norm(nn.Sequential(norm, nn.Linear(4, 4), norm).eval())
    assert twin[0] is twin[2]
    assert not twin[0].training
    assert not twin.training
