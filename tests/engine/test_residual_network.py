"""A residual network with batch normalization, as torch builds it, is trained as it is."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import topofl
from topofl import algorithms, data, topologies


class Block(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.downsample = None
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """With widths (64, 128, 256, 512) and two blocks of each, this is torchvision's resnet18."""

    def __init__(self, channels=3, widths=(64, 128, 256, 512), blocks=2):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, widths[0], 7, 2, 3, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(widths[0]), nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        layers = []
        for inside, outside in zip((widths[0], *widths), widths, strict=False):
            first = Block(inside, outside, 1 if outside == widths[0] else 2)
            layers.append(
                nn.Sequential(first, *(Block(outside, outside, 1) for _ in range(blocks - 1)))
            )
        self.layers = nn.Sequential(*layers)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(widths[-1], 10)

    def forward(self, x):
        x = self.layers(self.maxpool(self.relu(self.bn1(self.conv1(x)))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def check_training(model, dataset, n, rounds, batch_size, lr, falls_to):
    """Train, and check that the loss falls, that statistics differ, and the network stays.

    Nodes learn `batch_size` examples each, all at once: losses of small random batches scatter.
    """
    few = replace(dataset, train=dataset.train[: n * batch_size])
    before = copy.deepcopy(model.state_dict())
    history = topofl.run(
        algorithms.dsgd(lr=lr, batch_size=batch_size, momentum=0.9),
        model=model,
        clients=data.shards(few, n, per_node=2, seed=0),
        topology=topologies.ring(n),
        rounds=rounds,
        seed=0,
        evaluation=topofl.Evaluation(every=rounds, examples=50),
        compute=topofl.Compute("cpu"),
    )
    losses = history["train_loss"]
    assert np.mean(losses[-2:]) < falls_to * losses[0]
    assert np.isfinite(history.last("loss")).all()
    own = history.models.buffers
    kept = {name for name in before if "running" in name or "num_batches" in name}
    assert own.keys() == kept
    for name, values in own.items():
        if "running" in name:
            assert len(values.flatten(1).unique(dim=0)) == n, f"{name} is the same at some nodes"
    assert model.training
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())
    assert history.models.module(0).state_dict().keys() == before.keys()


def test_a_small_residual_network_is_trained_as_it_is():
    model = ResNet(1, widths=(4, 8), blocks=1)
    # Over 12 seeds, losses end at 0.22 of the first, with a standard deviation of 0.05.
    check_training(model, data.digits(), n=4, rounds=16, batch_size=16, lr=0.1, falls_to=0.6)


@pytest.mark.slow
def test_resnet18_is_trained_as_it_is(cifar10_subset):
    model = ResNet()
    assert sum(p.numel() for p in model.parameters()) == 11_181_642
    dataset = data.cifar10(cifar10_subset, verify=False)
    # Losses end at 0.013 of the first for three other seeds; 3 nodes after 6 rounds, with 1 or 2
    # threads, are at 0.031 to 0.036 for five seeds.
    check_training(model, dataset, n=4, rounds=8, batch_size=16, lr=0.01, falls_to=0.2)
