"""What networks and the replacement of normalization refuse."""

import pytest
from torch import nn

from tests.refusals import named, refused
from topofl import models


class Uncopyable(nn.Module):
    def __deepcopy__(self, memo):
        raise RuntimeError("no copies")


class WithActivation(nn.BatchNorm2d):
    def forward(self, input):
        return super().forward(input).relu()


def replaced(*layers, groups=32):
    module = layers[0] if len(layers) == 1 else nn.Sequential(*layers)
    return lambda: models.with_group_norm(module, groups=groups)


def side(build, small, fits):
    """Return a row of the shape of images that are just too small for a network."""
    return ValueError, "`in_shape", lambda: build(small), lambda: build(fits)


NOTHING = nn.Identity()
ROWS = [
    (ValueError, "`in_features` must be at least 1", lambda: models.logistic_regression(0)),
    (ValueError, "`n_classes` must be", lambda: models.logistic_regression(64, 1)),
    (ValueError, "`in_features` must be at least 1", lambda: models.mlp(0)),
    (ValueError, "`hidden` must be at least 1", lambda: models.mlp(hidden=0)),
    (ValueError, "`norm` must be True or False", lambda: models.mlp(norm=1)),
    (ValueError, "`in_shape` must be (channels, length)", lambda: models.mnist1d_cnn((1, 6, 6))),
    side(models.mnist1d_cnn, (1, 2), (1, 3)),
    (ValueError, "`channels` must be at least 1", lambda: models.mnist1d_cnn(channels=0)),
    (ValueError, "`n_classes`", lambda: models.gn_lenet(n_classes=1)),
    (ValueError, "`n_classes`", lambda: models.resnet18_gn(n_classes=1)),
    (ValueError, "`in_shape`", lambda: models.gn_lenet((32, 32))),
    side(models.gn_lenet, (0, 28, 28), (1, 28, 28)),
    side(models.gn_lenet, (1, 14, 28), (1, 15, 28)),
    side(models.dpfl_cnn, (3, 15, 32), (3, 16, 32)),
    side(models.dpfl_femnist_cnn, (1, 28, 12), (1, 28, 16)),
    side(models.fedavg_cnn, (1, 4, 28), (1, 16, 28)),
    side(models.resnet18_gn, (3, 7, 32), (3, 8, 32)),
    (ValueError, "`hidden`", lambda: models.fedavg_cnn(hidden=0)),
    (ValueError, "`padding`", lambda: models.fedavg_cnn(padding=-1)),
    (ValueError, "`groups` must divide 64", lambda: models.resnet18_gn(groups=48)),
    (ValueError, "`groups`", lambda: models.resnet18_gn(groups=0)),
    (ValueError, "`groups` must be at least 1, got 0", replaced(nn.BatchNorm2d(4), groups=0)),
    (TypeError, "`groups` must be an integer", replaced(nn.BatchNorm2d(4), groups="x")),
    (TypeError, ("`module` must be a torch.nn.Module", "got 'resnet'"), replaced("resnet")),
    (TypeError, "`module` must be a torch.nn.Module", replaced(nn.BatchNorm2d)),
    (TypeError, "be copied, copy.deepcopy raised RuntimeError", replaced(Uncopyable())),
    (
        ValueError,
        "layer '0' of `module` must have a known",
        replaced(nn.LazyBatchNorm2d(), NOTHING),
    ),
    (ValueError, "got WithActivation, which may comp", replaced(WithActivation(4), NOTHING)),
    (ValueError, "`module` must have at least 2 channels", replaced(nn.BatchNorm1d(1))),
]


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_refused(row):
    refused(*row)
