import pytest
import torch

from topofl import models


def test_parameter_counts_of_the_paper():
    counts = {
        7850: models.logistic_regression(),
        85354: models.gn_lenet(),
        80554: models.gn_lenet((1, 28, 28)),
    }
    for count, model in counts.items():
        assert sum(p.numel() for p in model.parameters()) == count


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (2, 15, 40)])
def test_gn_lenet_takes_its_shape(shape):
    assert models.gn_lenet(shape, 7)(torch.zeros(2, *shape)).shape == (2, 7)


def test_gn_lenet_pools_before_normalizing_in_the_first_block_only():
    order = [name.rstrip("123") for name, _ in models.gn_lenet().named_children()]
    block = ["conv", "norm", "pool", "relu"]
    assert order == ["conv", "pool", "norm", "relu", *block, *block, "flatten", "head"]


@pytest.mark.parametrize("model", [models.logistic_regression, models.gn_lenet])
def test_head_is_the_last_layer_and_global_generator_stays(model):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    built = model()
    assert torch.equal(before, torch.get_rng_state())
    assert list(dict(built.named_parameters()))[-2:] == ["head.weight", "head.bias"]


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: models.logistic_regression(0), "in_features"),
        (lambda: models.logistic_regression(64, 1), "n_classes"),
        (lambda: models.gn_lenet((0, 28, 28)), "in_shape"),
        (lambda: models.gn_lenet((1, 14, 28)), "in_shape"),
        (lambda: models.gn_lenet(n_classes=1), "n_classes"),
    ],
)
def test_bad_input_is_named(build, name):
    with pytest.raises(ValueError, match=name):
        build()
