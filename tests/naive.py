"""The reference: one nn.Module a node, Python loops, nothing batched, nothing clever. Read it aloud.

Every function trains in place the modules it is given. It shares with the library only the definition of which examples
a node draws when (random keys) and the weights of the graph.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from topofl._seeding import random_keys, torch_seed


def minibatch(members, node, step, batch_size, phase, seed):
    """Examples of one node in one local step: epoch after epoch, each in a fresh order, last minibatch kept."""
    steps_per_epoch = int(np.ceil(len(members) / batch_size))
    epoch, place = divmod(step, steps_per_epoch)
    key = (epoch << 32) | node
    keys = random_keys(torch_seed(seed, f"batches/{phase}"), [key], np.arange(len(members)))[0]
    order = [members[k] for k in sorted(range(len(members)), key=lambda k: keys[k])]
    return order[place * batch_size : (place + 1) * batch_size]


def gradient(module, inputs, labels):
    module.zero_grad()
    functional.cross_entropy(module(inputs), labels).backward()
    return [p.grad.clone() for p in module.parameters()]


def descend(module, velocity, g, lr, momentum):
    """Heavy ball: v <- momentum v + g;  theta <- theta - lr v."""
    for p, v, g_p in zip(module.parameters(), velocity, g, strict=True):
        v.mul_(momentum).add_(g_p)
        p.data.sub_(lr * v)


def average(modules, weights):
    """Gossip: theta_i <- sum_j W[i, j] theta_j, all at once."""
    old = [[p.detach().clone() for p in module.parameters()] for module in modules]
    for i, module in enumerate(modules):
        for k, p in enumerate(module.parameters()):
            p.data.copy_(sum(weights[i, j] * old[j][k] for j in range(len(modules))))


class Nodes:
    """n modules, their velocities, and their data."""

    def __init__(self, modules, inputs, labels, members, batch_size, seed):
        self.modules, self.inputs, self.labels = modules, inputs, labels
        self.members, self.batch_size, self.seed = members, batch_size, seed
        self.velocities = [[torch.zeros_like(p) for p in module.parameters()] for module in modules]

    def gradient(self, i, step):
        batch = torch.as_tensor(minibatch(self.members[i], i, step, self.batch_size, "local", self.seed))
        return gradient(self.modules[i], self.inputs[batch], self.labels[batch])

    def flat(self):
        return torch.stack([nn.utils.parameters_to_vector(m.parameters()).detach() for m in self.modules])


def dsgd(nodes, weights, rounds, *, lr, momentum=0.0, local_steps=1):
    for t in range(rounds):
        for i, module in enumerate(nodes.modules):
            for k in range(local_steps):
                descend(module, nodes.velocities[i], nodes.gradient(i, t * local_steps + k), lr, momentum)
        average(nodes.modules, weights)


def clique_averaging(nodes, weights, rounds, *, lr, cliques, momentum=0.0):
    for t in range(rounds):
        gradients = [nodes.gradient(i, t) for i in range(len(nodes.modules))]
        for i, module in enumerate(nodes.modules):
            clique = next(c for c in cliques if i in c)
            mean = [sum(gradients[j][k] for j in clique) / len(clique) for k in range(len(gradients[i]))]
            descend(module, nodes.velocities[i], mean, lr, momentum)
        average(nodes.modules, weights)


def local_only(nodes, rounds, *, lr, momentum=0.0, local_steps=1):
    for i, module in enumerate(nodes.modules):
        for step in range(rounds * local_steps):
            descend(module, nodes.velocities[i], nodes.gradient(i, step), lr, momentum)


def centralized(nodes, rounds, *, lr, momentum=0.0):
    (module,) = nodes.modules
    for t in range(rounds):
        descend(module, nodes.velocities[0], nodes.gradient(0, t), lr, momentum)
