"""All methods as plain loops, for reference: one file, to be read from top to bottom.

There is one nn.Module per node, and nothing is batched.

Every function trains in place the modules it is given. It shares with the library only the
definition of which examples a node draws when, and what it makes of them (random keys), and the
weights of the graph.
"""

import copy
import functools
import math
import statistics

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from topofl._support.seeding import random_keys, stream, torch_seed


def minibatch(members, node, step, batch_size, phase, seed):
    """Return a node's examples in a local step; epochs are shuffled, the last minibatch is kept."""
    steps_per_epoch = int(np.ceil(len(members) / batch_size))
    epoch, place = divmod(step, steps_per_epoch)
    key = (epoch << 32) | node
    keys = random_keys(torch_seed(seed, f"batches/{phase}"), [key], np.arange(len(members)))[0]
    order = [members[k] for k in sorted(range(len(members)), key=lambda k: keys[k])]
    return order[place * batch_size : (place + 1) * batch_size]


def augmented(images, node, step, phase, seed, *, padding, flip):
    """Pad images with zeros, crop them randomly to their size, and mirror half of them."""
    side = 2 * padding + 1
    flips = 2 if flip else 1
    key = (step << 32) | node
    keys = random_keys(torch_seed(seed, f"augment/{phase}"), [key], np.arange(len(images)))[0]
    made = []
    for image, bits in zip(images, keys, strict=True):
        choice = (int(bits) >> 32) * side * side * flips >> 32  # one of as many, all equally likely
        place, mirrored = divmod(choice, flips)
        made.append(cut(image, *divmod(place, side), mirrored, padding))
    return np.stack(made)


def cut(image, top, left, mirrored, padding):
    """Return one image, padded, cropped and possibly flipped."""
    _, height, width = image.shape
    padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
    crop = padded[:, top : top + height, left : left + width]
    return crop[:, :, ::-1] if mirrored else crop


def gradient(module, inputs, labels):
    module.zero_grad()
    functional.cross_entropy(module(inputs), labels).backward()
    return [p.grad.clone() for p in module.parameters()]


def descend(module, velocity, g, lr, momentum):
    """Heavy ball: v <- momentum v + g;  theta <- theta - lr v."""
    for p, v, g_p in zip(module.parameters(), velocity, g, strict=True):
        v.mul_(momentum).add_(g_p)
        p.data.sub_(lr * v)


def average(modules, weights, travels=lambda name: True):
    """Gossip: theta_i <- sum_j W[i, j] theta_j, all at once, of the parameters that travel."""
    old = [
        {name: p.detach().clone() for name, p in module.named_parameters()} for module in modules
    ]
    for i, module in enumerate(modules):
        for name, p in module.named_parameters():
            if travels(name):
                p.data.copy_(sum(weights[i, j] * old[j][name] for j in range(len(modules))))


class Nodes:
    """The n modules, their velocities and their data; `see` transforms inputs for a module."""

    def __init__(self, modules, inputs, labels, members, batch_size, seed, see=None):
        self.see = see or (lambda inputs, node, step, phase: inputs)
        self.modules, self.inputs, self.labels = modules, inputs, labels
        self.members, self.batch_size, self.seed = members, batch_size, seed
        self.velocities = [still(module) for module in modules]

    def gradient(self, i, step):
        return gradient(self.modules[i], *batch_of(self, i, step, "local"))

    def flat(self):
        return torch.stack(
            [nn.utils.parameters_to_vector(m.parameters()).detach() for m in self.modules]
        )


def dsgd(nodes, weights, rounds, *, lr, momentum=0.0, local_steps=1):
    for t in range(rounds):
        for i, module in enumerate(nodes.modules):
            for k in range(local_steps):
                g = nodes.gradient(i, t * local_steps + k)
                descend(module, nodes.velocities[i], g, lr, momentum)
        average(nodes.modules, weights)


def clique_averaging(nodes, weights, rounds, *, lr, cliques, momentum=0.0):
    for t in range(rounds):
        gradients = [nodes.gradient(i, t) for i in range(len(nodes.modules))]
        for i, module in enumerate(nodes.modules):
            clique = next(c for c in cliques if i in c)
            mean = [
                sum(gradients[j][k] for j in clique) / len(clique) for k in range(len(gradients[i]))
            ]
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


def passes(
    nodes,
    i,
    t,
    phase,
    epochs,
    lr,
    *,
    module=None,
    trains=None,
    momentum=0.0,
    weight_decay=0.0,
    clip=None,
    mass=1.0,
    anchor=None,
    strength=0.0,
    mask=None,
    toward=None,
    penalty=None,
):
    """Take some epochs of heavy-ball SGD, from velocity zero, on one node's data.

    `trains` selects the parameters. With a push-sum weight `mass`, steps apply to x = mass * z with
    the gradient at z, which the module holds.
    """
    module = nodes.modules[i] if module is None else module
    named = [(name, p) for name, p in module.named_parameters() if trains is None or trains(name)]
    velocity = [torch.zeros_like(p) for _, p in named]
    steps = epochs * int(np.ceil(len(nodes.members[i]) / nodes.batch_size))
    steps = math.ceil(round(steps, 9))  # a fraction of a pass takes whole minibatches
    for step in range(t * steps, (t + 1) * steps):
        module.zero_grad()
        seen, labels = batch_of(nodes, i, step, phase)
        loss = functional.cross_entropy(module(seen), labels)
        (loss if penalty is None else loss + penalty(seen, labels)).backward()
        gradients = [p.grad.clone() for _, p in named]
        norm = float(sum(g.square().sum() for g in gradients)) ** 0.5
        turns = [0.0] * len(named) if toward is None else turning([p for _, p in named], toward)
        for v, g, turn, (name, p) in zip(velocity, gradients, turns, named, strict=True):
            if clip is not None:
                g = g * min(1.0, clip / (norm + 1e-6))
            g = g + weight_decay * p.data
            if anchor is not None:
                g = g + strength * (p.data - dict(anchor.named_parameters())[name].data)
            g = g + turn
            if mask is not None:
                g = g * mask[name]
            v.mul_(momentum).add_(g)
            p.data.sub_(lr / mass * v)


def fine_tuned(nodes, t, **local):
    """Return copies of all modules, fine-tuned on their own data as after round t."""
    copies = [copy.deepcopy(module) for module in nodes.modules]
    for i, module in enumerate(copies):
        passes(nodes, i, t, "fine_tune", module=module, **local)
    return copies


def push(modules, masses, shares, travels):
    """Push-sum: node j sends the share P[i, j] of x_j = mass_j z_j to node i.

    Then z_i = x_i / mass_i.
    """
    n = len(modules)
    old = [
        {name: masses[j] * p.detach() for name, p in modules[j].named_parameters()}
        for j in range(n)
    ]
    new = [sum(shares[i, j] * masses[j] for j in range(n)) for i in range(n)]
    for i, module in enumerate(modules):
        for name, p in module.named_parameters():
            if travels(name):
                p.data.copy_(sum(shares[i, j] * old[j][name] for j in range(n)) / new[i])
    masses[:] = new


def dfedpgp(
    nodes,
    matrices,
    rounds,
    *,
    mode,
    lr,
    head_lr,
    epochs=5,
    head_epochs=1,
    is_head,
    lr_decay=1.0,
    **local,
):
    """Train heads, then bodies, and average bodies; return the final push-sum weights."""
    masses = [1.0] * len(nodes.modules)
    is_body = lambda name: not is_head(name)  # noqa: E731
    for t in range(rounds):
        for i in range(len(nodes.modules)):
            mass, fall = masses[i], lr_decay**t
            passes(nodes, i, t, "head", head_epochs, head_lr * fall, trains=is_head, **local)
            passes(nodes, i, t, "body", epochs, lr * fall, trains=is_body, mass=mass, **local)
        if mode == "push":
            push(nodes.modules, masses, matrices[t], is_body)
        else:
            average(nodes.modules, matrices[t], is_body)
    return masses


def dfedavgm(nodes, matrices, rounds, *, lr, epochs=5, lr_decay=1.0, **local):
    for t in range(rounds):
        for i in range(len(nodes.modules)):
            passes(nodes, i, t, "local", epochs=epochs, lr=lr * lr_decay**t, **local)
        average(nodes.modules, matrices[t])


def osgp(nodes, matrices, rounds, *, lr, delay=0, epochs=5, lr_decay=1.0, **local):
    """SGP with delayed messages: each (x = mass z, mass) is stored with its round of arrival.

    A node's own share arrives immediately.
    """
    n = len(nodes.modules)
    masses, letters = [1.0] * n, []
    for t in range(rounds):
        for i in range(n):
            passes(nodes, i, t, "local", epochs, lr * lr_decay**t, mass=masses[i], **local)
        held = [[masses[j] * p.detach() for p in nodes.modules[j].parameters()] for j in range(n)]
        for j in range(n):
            for i in range(n):
                content = [matrices[t][i, j] * x for x in held[j]], matrices[t][i, j] * masses[j]
                letters.append((t if i == j else t + delay, i, *content))
        for i in range(n):
            arriving = [letter for letter in letters if letter[:2] == (t, i)]
            masses[i] = sum(mass for *_, mass in arriving)
            for k, p in enumerate(nodes.modules[i].parameters()):
                p.data.copy_(sum(x[k] for _, _, x, _ in arriving) / masses[i])
    under_way = sum(mass for arrival, *_, mass in letters if arrival >= rounds)
    return masses, under_way


def fedavg(
    nodes,
    members,
    rounds,
    *,
    lr,
    epochs=5,
    lr_decay=1.0,
    trains=None,
    travels=lambda name: True,
    head=None,
    **local,
):
    """FedAvg, and with `travels` or `head` = (is_head, lr, epochs) its personalized variants.

    The nodes members(t) participate in round t.
    """
    for t in range(rounds):
        active = members(t)
        for i in active:
            if head is not None:
                is_head, head_lr, head_epochs = head
                rate = head_lr * lr_decay**t
                passes(nodes, i, t, "head", head_epochs, rate, trains=is_head, **local)
            phase = "local" if trains is None else "body"
            passes(nodes, i, t, phase, epochs=epochs, lr=lr * lr_decay**t, trains=trains, **local)
        serve(nodes, nodes.modules, active, travels)


def serve(nodes, modules, active, travels):
    """Average models weighted by numbers of examples, and copy the average to all nodes."""
    total = sum(len(nodes.members[j]) for j in active)
    weights = np.zeros((len(modules), len(modules)))
    for j in active:
        weights[:, j] = len(nodes.members[j]) / total
    average(modules, weights, travels)


def hierfavg(nodes, rounds, *, lr, groups, members_of, cloud_every, lr_decay=1.0, **local):
    """HierFAVG: `edges` are the models of the edge servers of `groups`, lists of nodes.

    The nodes members_of(group, t) of a group participate in round t.
    """
    edges = [copy.deepcopy(nodes.modules[group[0]]) for group in groups]
    for t in range(rounds):
        for edge, group in zip(edges, groups, strict=True):
            active = members_of(group, t)
            for i in active:
                passes(nodes, i, t, "local", lr=lr * lr_decay**t, **local)
            part = shares(nodes, active)
            models = [list(module.parameters()) for module in nodes.modules]
            for k, p in enumerate(edge.parameters()):
                p.data.copy_(sum(part[i] * models[i][k].data for i in active))
        if (t + 1) % cloud_every == 0:
            sizes = [sum(len(nodes.members[i]) for i in group) for group in groups]
            cloud = copy.deepcopy(edges[0])
            models = [list(edge.parameters()) for edge in edges]
            for k, p in enumerate(cloud.parameters()):
                held = zip(sizes, models, strict=True)
                p.data.copy_(sum(size * edge[k].data for size, edge in held) / sum(sizes))
            for edge in edges:
                edge.load_state_dict(cloud.state_dict())
        for edge, group in zip(edges, groups, strict=True):
            for i in group:
                nodes.modules[i].load_state_dict(edge.state_dict())


def ditto(
    nodes,
    members,
    rounds,
    *,
    lr,
    personal_lr,
    strength,
    epochs=2,
    personal_epochs=3,
    lr_decay=1.0,
    **local,
):
    common = [copy.deepcopy(module) for module in nodes.modules]
    for t in range(rounds):
        for i in members(t):
            how = {"anchor": common[i], "strength": strength} | local
            passes(nodes, i, t, "personal", personal_epochs, personal_lr * lr_decay**t, **how)
        for i in members(t):
            passes(nodes, i, t, "common", epochs, lr * lr_decay**t, module=common[i], **local)
        serve(nodes, common, members(t), lambda name: True)


def pfedme(
    nodes,
    rounds,
    *,
    lr,
    strength,
    personal_lr,
    personal_steps,
    beta=1.0,
    members=None,
    weights=None,
    epochs=5,
    lr_decay=1.0,
    weight_decay=0.0,
):
    """PFedMe, by a server of members(t), or with `weights` by each node's neighbors.

    The modules hold the personal models; `common` are the w_i.
    """
    common = [copy.deepcopy(module) for module in nodes.modules]
    for t in range(rounds):
        before = [copied(module) for module in common]
        active = range(len(common)) if members is None else members(t)
        for i in active:
            theta = nodes.modules[i]
            theta.load_state_dict(common[i].state_dict())
            steps = epochs * math.ceil(len(nodes.members[i]) / nodes.batch_size)
            for step in range(t * steps, (t + 1) * steps):
                w = copied(common[i])
                for _ in range(personal_steps):
                    g = nodes.gradient(i, step)
                    for p, g_p, w_p in zip(theta.parameters(), g, w, strict=True):
                        slope = g_p + strength * (p.data - w_p) + weight_decay * p.data
                        p.data.sub_(personal_lr * slope)
                for p, w_p in zip(theta.parameters(), common[i].parameters(), strict=True):
                    w_p.data.sub_(lr * lr_decay**t * strength * (w_p.data - p.data))
        if weights is None:
            serve(nodes, common, active, lambda name: True)
        else:
            average(common, weights)
        for module, old in zip(common, before, strict=True):
            for p, p_old in zip(module.parameters(), old, strict=True):
                p.data.copy_((1 - beta) * p_old + beta * p.data)


def erk_ones(shapes, dense_ratio):
    """Return the number of ones per layer, min(1, eps sum(s) / prod(s)) prod(s), rounded.

    The eps is found by bisection.
    """
    low, high = 0.0, float(sum(math.prod(s) for s in shapes))
    for _ in range(200):
        eps = (low + high) / 2
        much = sum(min(math.prod(s), eps * sum(s)) for s in shapes) > dense_ratio * sum(
            math.prod(s) for s in shapes
        )
        low, high = (low, eps) if much else (eps, high)
    return [round(min(math.prod(s), eps * sum(s))) for s in shapes]


def first_mask(module, dense_ratio, rng):
    """Draw the ones of every layer at random."""
    ones, mask = erk_ones([p.shape for p in module.parameters()], dense_ratio), {}
    for (name, p), count in zip(module.named_parameters(), ones, strict=True):
        flat = torch.zeros(p.numel(), dtype=p.dtype)
        flat[rng.permutation(p.numel())[:count]] = 1
        mask[name] = flat.view(p.shape)
    return mask


def prune_and_regrow(module, mask, rho, scores):
    """Replace the smallest weights of each layer by those of highest score; the first of ties."""
    for name, p in module.named_parameters():
        weights = p.detach().flatten().abs().tolist()
        score = scores[name].flatten().tolist()
        ones = [k for k, m in enumerate(mask[name].flatten().tolist()) if m]
        count = math.ceil(round(rho * len(ones), 9))
        weakest = sorted(ones, key=lambda k: weights[k])[:count]
        stay = set(ones) - set(weakest)
        zeros = [k for k in range(len(weights)) if k not in stay]
        grown = sorted(zeros, key=lambda k: -score[k])[:count]
        flat = torch.zeros(p.numel(), dtype=p.dtype)
        flat[sorted(stay | set(grown))] = 1
        mask[name] = flat.view(p.shape)
        p.data.mul_(mask[name])


def average_masked(modules, masks, received):
    """Average each weight in node i's mask over i and the nodes of heard[i] that have it."""
    old = [
        {name: p.detach().clone() for name, p in module.named_parameters()} for module in modules
    ]
    for i, module in enumerate(modules):
        for name, p in module.named_parameters():
            total, have = torch.zeros_like(p), torch.zeros_like(p)
            for j in {i, *received[i]}:
                total, have = total + old[j][name], have + masks[j][name]
            p.data.copy_(torch.where(masks[i][name] > 0, total / have.clamp(min=1), 0))


def dispfl(
    nodes,
    received,
    rounds,
    *,
    lr,
    until,
    dense_ratio=0.5,
    prune=0.5,
    regrow="gradient",
    different_initial=False,
    epochs=5,
    lr_decay=1.0,
    **local,
):
    """Return the masks after every round; in round t, node i receives from heard[t][i]."""
    n, history = len(nodes.modules), []
    purposes = [f"masks/{i}" if different_initial else "masks" for i in range(n)]
    masks = [
        first_mask(nodes.modules[i], dense_ratio, stream(nodes.seed, purposes[i], 0))
        for i in range(n)
    ]
    for module, mask in zip(nodes.modules, masks, strict=True):
        for name, p in module.named_parameters():
            p.data.mul_(mask[name])
    for t in range(rounds):
        rho = prune / 2 * (1 + math.cos(math.pi * t / until))
        for i, module in enumerate(nodes.modules):
            passes(nodes, i, t, "local", epochs=epochs, lr=lr * lr_decay**t, mask=masks[i], **local)
            names = [name for name, _ in module.named_parameters()]
            if regrow == "gradient":
                found = gradient(module, *batch_of(nodes, i, t, "exchange"))
                scores = {name: g.abs() for name, g in zip(names, found, strict=True)}
            else:
                draws = {name: stream(nodes.seed, f"regrow/{i}/{name}", t) for name in names}
                scores = {
                    name: torch.from_numpy(draws[name].random(p.numel()))
                    for name, p in module.named_parameters()
                }
            prune_and_regrow(module, masks[i], rho, scores)
        average_masked(nodes.modules, masks, received[t])
        history.append([{name: m.clone() for name, m in mask.items()} for mask in masks])
    return history


@torch.no_grad()
def mean_of(modules, group, sizes):
    """Return a module whose parameters are the mean of those of a group, weighted by sizes."""
    mean = copy.deepcopy(modules[group[0]])
    for k, p in enumerate(mean.parameters()):
        terms = [sizes[i] * list(modules[i].parameters())[k].detach() for i in group]
        p.data = sum(terms) / sum(sizes[i] for i in group)
    return mean


def greedy(reward, k, order, coins, budget):
    """GGC as listed in the paper, for node k and candidates in the given order."""
    taken, left = {k}, {k, *order}
    for j, coin in zip(order, coins, strict=True):
        if budget is not None and len(taken - {k}) == budget:
            break
        a = max(reward(taken | {j}) - reward(taken), 0)
        b = max(reward(left - {j}) - reward(left), 0)
        if coin < (1 if a == b == 0 else a / (a + b)):
            taken = taken | {j}
        else:
            left = left - {j}
    return sorted(taken - {k})


def dpfl(
    nodes,
    val,
    rounds,
    *,
    lr,
    draws,
    budget=None,
    epochs=5,
    first_epochs=10,
    every=1,
    keep=True,
    lr_decay=1.0,
    passive=(),
    **local,
):
    """Return from which nodes each receives in every round.

    draws(t, k, pool) is an order of candidates and a random number for each.
    """
    n, sizes = len(nodes.modules), [len(own) for own in nodes.members]
    candidates = [[] if k in passive else [i for i in range(n) if i != k] for k in range(n)]
    chosen, received = [[] for _ in range(n)], []
    for t in range(rounds):
        for i in range(n):
            phase, passed = ("local", epochs) if t else ("first", first_epochs)
            passes(nodes, i, t, phase, epochs=passed, lr=lr * lr_decay**t, **local)
        if t % every == 0:
            for k in range(n):
                images, labels = nodes.inputs[list(val[k])], nodes.labels[list(val[k])]

                def reward(group, images=images, labels=labels):
                    outputs = mean_of(nodes.modules, sorted(group), sizes)(images).detach()
                    return -float(functional.cross_entropy(outputs, labels))

                chosen[k] = greedy(reward, k, *draws(t, k, candidates[k]), budget)
            candidates = [list(own) for own in chosen] if t == 0 else candidates
        groups = [[k] if t % every and not keep else sorted([k, *chosen[k]]) for k in range(n)]
        means = [mean_of(nodes.modules, groups[k], sizes) for k in range(n)]
        for module, mean in zip(nodes.modules, means, strict=True):
            module.load_state_dict(mean.state_dict())
        received.append([[i for i in group if i != k] for k, group in enumerate(groups)])
    return received


def batch_of(nodes, i, step, phase):
    """Return the transformed inputs and the labels of one node in one local step."""
    batch = torch.as_tensor(
        minibatch(nodes.members[i], i, step, nodes.batch_size, phase, nodes.seed)
    )
    return nodes.see(nodes.inputs[batch], i, step, phase), nodes.labels[batch]


def heavy_ball(module, velocity, gradients, *, lr, momentum=0.0, weight_decay=0.0, clip=None):
    """Clip gradients and add weight decay; v <- momentum v + g;  theta <- theta - lr v."""
    norm = float(sum(g.square().sum() for g in gradients)) ** 0.5
    for p, v, g in zip(module.parameters(), velocity, gradients, strict=True):
        g = g if clip is None else g * min(1.0, clip / (norm + 1e-6))
        v.mul_(momentum).add_(g + weight_decay * p.data)
        p.data.sub_(lr * v)


def still(module):
    return [torch.zeros_like(p) for p in module.parameters()]


def fedprox(nodes, members, rounds, *, lr, strength, epochs=5, lr_decay=1.0, **local):
    """FedProx; `strength` is one number, or one per node."""
    strengths = strength if isinstance(strength, list) else [strength] * len(nodes.modules)
    for t in range(rounds):
        for i in members(t):
            how = {"anchor": copy.deepcopy(nodes.modules[i]), "strength": strengths[i]} | local
            passes(nodes, i, t, "local", epochs, lr * lr_decay**t, **how)
        serve(nodes, nodes.modules, members(t), lambda name: True)


def fedala(
    nodes,
    rounds,
    *,
    lr,
    mixed,
    weight_lr,
    weight_epochs,
    first_epochs,
    members=None,
    weights=None,
    epochs=5,
    lr_decay=1.0,
    **local,
):
    """FedALA, by a server of members(t), or with `weights` by each node's neighbors.

    The average is mixed into the parameters named in `mixed` by weights that each node learns.
    """
    learned = [[torch.ones_like(p) for p in module.parameters()] for module in nodes.modules]
    names = [name for name, _ in nodes.modules[0].named_parameters()]
    for t in range(rounds):
        active = range(len(learned)) if members is None else members(t)
        for i in active:
            passes(nodes, i, t, "local", epochs, lr * lr_decay**t, **local)
        averages = [copy.deepcopy(module) for module in nodes.modules]
        if weights is None:
            serve(nodes, averages, active, lambda name: True)
        else:
            average(averages, weights)
        for i in active if weights is None else range(len(learned)):
            own, mean, phase = copied(nodes.modules[i]), copied(averages[i]), "exchange"
            phase = "server" if weights is None else phase
            minibatches = math.ceil(len(nodes.members[i]) / nodes.batch_size)
            steps = math.ceil(round((weight_epochs if t else first_epochs) * minibatches, 9))
            mix(nodes.modules[i], own, mean, learned[i], names, mixed)
            for step in range(t * steps, (t + 1) * steps):
                g = gradient(nodes.modules[i], *batch_of(nodes, i, step, phase))
                for k in range(len(names)):
                    slope = g[k] * (mean[k] - own[k])
                    learned[i][k] = (learned[i][k] - weight_lr * slope).clamp(0, 1)
                mix(nodes.modules[i], own, mean, learned[i], names, mixed)
    return learned


def mix(module, own, mean, weights, names, mixed):
    """Set a module to own + (mean - own) * weight in the parameters that are mixed, else mean."""
    for p, a, b, w, name in zip(module.parameters(), own, mean, weights, names, strict=True):
        p.data.copy_(a + (b - a) * w if mixed(name) else b)


def fedproto(
    nodes, members, rounds, *, lr, strength, weights=None, epochs=5, lr_decay=1.0, **local
):
    """FedProto, by a server, or with `weights` by each node's neighbors.

    Features are the inputs of the last layer. A node without examples of a class sends no prototype
    of it.
    """
    n, known = len(nodes.modules), [{} for _ in nodes.modules]

    def features(i, inputs):
        *layers, _ = nodes.modules[i]
        return nn.Sequential(*layers)(inputs)

    def penalty(i, seen, labels):
        near = zip(features(i, seen), labels.tolist(), strict=True)
        far = [(x - known[i][c]).square().mean() for x, c in near if c in known[i]]
        return strength * sum(far) / len(labels)

    for t in range(rounds):
        active = members(t)
        for i in active:
            far = functools.partial(penalty, i)
            passes(nodes, i, t, "local", epochs, lr * lr_decay**t, penalty=far, **local)
        own = [{} for _ in nodes.modules]
        with torch.no_grad():
            for i, examples in enumerate(nodes.members):
                labels = nodes.labels[torch.tensor(examples)]
                looks = features(i, nodes.inputs[torch.tensor(examples)])
                own[i] = {c: looks[labels == c].mean(0) for c in set(labels.tolist())}
        for i in range(n):
            row = [float(j in active) for j in range(n)] if weights is None else weights[i]
            heard = [j for j in range(n) if row[j] > 0]
            for c in set().union(*(own[j] for j in heard)):
                having = [j for j in heard if c in own[j]]
                total = sum(row[j] for j in having)
                known[i][c] = sum(row[j] * own[j][c] for j in having) / total
            known[i] = {c: p for c, p in known[i].items() if any(c in own[j] for j in heard)}
    return known


def feddecorr(
    nodes, rounds, *, lr, strength, members=None, weights=None, epochs=5, lr_decay=1.0, **local
):
    """FedDecorr, by a server of members(t), or with `weights` by each node's neighbors."""

    def penalty(module, seen, labels):
        *layers, _ = module
        x = nn.Sequential(*layers)(seen).flatten(1)
        if len(x) == 1:
            return torch.zeros((), dtype=x.dtype)
        x = (x - x.mean(0)) / torch.sqrt(1e-8 + x.var(0))
        products, different = x.T @ x, ~torch.eye(x.shape[1], dtype=torch.bool)
        return strength * (products[different] ** 2).mean() / len(x)

    for t in range(rounds):
        active = range(len(nodes.modules)) if members is None else members(t)
        for i in active:
            far = functools.partial(penalty, nodes.modules[i])
            passes(nodes, i, t, "local", epochs, lr * lr_decay**t, penalty=far, **local)
        if weights is None:
            serve(nodes, nodes.modules, active, lambda name: True)
        else:
            average(nodes.modules, weights)


def moon(
    nodes,
    rounds,
    *,
    lr,
    strength,
    temperature,
    members=None,
    weights=None,
    epochs=5,
    lr_decay=1.0,
    **local,
):
    """MOON, by a server of members(t), or with `weights` by each node's neighbors."""
    before = [copy.deepcopy(module) for module in nodes.modules]

    def features(module, inputs):
        *layers, _ = module
        return nn.Sequential(*layers)(inputs)

    def contrast(module, averaged, last, seen, labels):
        own, *others = (features(each, seen) for each in (module, averaged, last))
        near, far = (
            (own * x.detach()).sum(1) / (own.norm(dim=1) * x.detach().norm(dim=1)) for x in others
        )
        apart = torch.exp(near / temperature) + torch.exp(far / temperature)
        return -strength * torch.log(torch.exp(near / temperature) / apart).mean()

    for t in range(rounds):
        active = range(len(before)) if members is None else members(t)
        for i in active:
            averaged = copy.deepcopy(nodes.modules[i])
            apart = functools.partial(contrast, nodes.modules[i], averaged, before[i])
            passes(nodes, i, t, "local", epochs, lr * lr_decay**t, penalty=apart, **local)
            before[i] = copy.deepcopy(nodes.modules[i])
        if weights is None:
            serve(nodes, nodes.modules, active, lambda name: True)
        else:
            average(nodes.modules, weights)


def lowest(nodes, i, modules):
    """Return which of some modules has the lowest mean loss on a node's training data."""
    own = list(nodes.members[i])
    losses = [
        functional.cross_entropy(module(nodes.inputs[own]).detach(), nodes.labels[own])
        for module in modules
    ]
    return min(range(len(modules)), key=lambda j: float(losses[j]))


def choices(nodes, t, models_of, k, common):
    """Return which of k modules each node chooses; in the first round of a common start, any."""
    n = len(nodes.modules)
    if common and t == 0:
        return stream(nodes.seed, "cluster", t).integers(k, size=n).tolist()
    return [lowest(nodes, i, models_of(i)) for i in range(n)]


def steps_from_rest(nodes, i, t, lr, momentum, local_steps):
    """Take the local steps of round t at one node, from velocity zero."""
    velocity = still(nodes.modules[i])
    for k in range(local_steps):
        g = nodes.gradient(i, t * local_steps + k)
        descend(nodes.modules[i], velocity, g, lr, momentum)


def ifca(nodes, members, rounds, *, lr, k, local_steps, momentum=0.0, common=False):
    """Return the cluster of each node per round; nodes hold the server's model of their cluster."""
    servers = [copy.deepcopy(module) for module in nodes.modules[:k]]
    told = []
    for t in range(rounds):
        chosen = choices(nodes, t, lambda i: servers, k, common)
        for module, j in zip(nodes.modules, chosen, strict=True):
            module.load_state_dict(servers[j].state_dict())
        for i in members(t):
            steps_from_rest(nodes, i, t, lr, momentum, local_steps)
        for j in range(k):
            trained = [nodes.modules[i].parameters() for i in members(t) if chosen[i] == j]
            for p, *own in zip(servers[j].parameters(), *trained, strict=True):
                if own:
                    p.data.copy_(sum(own) / len(own))
        for module, j in zip(nodes.modules, chosen, strict=True):
            module.load_state_dict(servers[j].state_dict())
        told.append(chosen)
    return told


def facade(nodes, weights, rounds, *, lr, k, is_head, local_steps, momentum=0.0, common=False):
    """Return the head that each node trained per round. Each node has k modules with one core."""
    n = len(nodes.modules)
    mine = [[copy.deepcopy(module) for _ in range(k)] for module in nodes.modules]

    def share(i, of):
        """Copy the core of a module to all modules of a node."""
        for module in mine[i]:
            for (name, p), other in zip(module.named_parameters(), of.parameters(), strict=True):
                if not is_head(name):
                    p.data.copy_(other)

    for i in range(n):
        for j in range(k):
            mine[i][j].load_state_dict(nodes.modules[j].state_dict())
        share(i, nodes.modules[i])
    told = []
    for t in range(rounds):
        chosen = choices(nodes, t, lambda i: mine[i], k, common)
        for i, module in enumerate(nodes.modules):
            module.load_state_dict(mine[i][chosen[i]].state_dict())
            steps_from_rest(nodes, i, t, lr, momentum, local_steps)
        for i in range(n):
            for j in range(k):
                total = sum(weights[i, m] for m in range(n) if m == i or chosen[m] == j)
                for name, p in mine[i][j].named_parameters():
                    sent = [dict(module.named_parameters())[name] for module in nodes.modules]
                    if not is_head(name):
                        p.data.copy_(sum(weights[i, m] * sent[m].detach() for m in range(n)))
                        continue
                    own = sent[i].detach() if chosen[i] == j else p.detach()
                    others = [m for m in range(n) if m != i and chosen[m] == j]
                    mean = weights[i, i] * own + sum(weights[i, m] * sent[m] for m in others)
                    p.data.copy_(mean.detach() / total)
        for i, module in enumerate(nodes.modules):
            module.load_state_dict(mine[i][chosen[i]].state_dict())
        told.append(chosen)
    return told


def per_fedavg(nodes, members, rounds, *, lr, inner_lr, epochs=5, lr_decay=1.0, **local):
    """Per-FedAvg: the gradient on a second minibatch is taken after a step on the first."""
    for t in range(rounds):
        for i in members(t):
            module = nodes.modules[i]
            velocity = still(module)
            steps = math.ceil(epochs * math.ceil(len(nodes.members[i]) / nodes.batch_size) / 2)
            for step in range(t * steps, (t + 1) * steps):
                adapted = copy.deepcopy(module)
                first = gradient(adapted, *batch_of(nodes, i, 2 * step, "local"))
                for p, g in zip(adapted.parameters(), first, strict=True):
                    p.data.sub_(inner_lr * g)
                second = gradient(adapted, *batch_of(nodes, i, 2 * step + 1, "local"))
                heavy_ball(module, velocity, second, lr=lr * lr_decay**t, **local)
        serve(nodes, nodes.modules, members(t), lambda name: True)


def mixture(personal, common, alpha):
    mixed = copy.deepcopy(common)
    for p, v, w in zip(mixed.parameters(), personal.parameters(), common.parameters(), strict=True):
        p.data.copy_(alpha * v.data + (1 - alpha) * w.data)
    return mixed


def apfl(nodes, members, rounds, *, lr, alpha=0.5, adaptive=True, epochs=5, lr_decay=1.0, **local):
    """Make modules mixtures; return those before the last exchange, and the final shares."""
    personal, common = copy.deepcopy(nodes.modules), copy.deepcopy(nodes.modules)
    alphas, own = [alpha] * len(nodes.modules), []
    for t in range(rounds):
        for i in members(t):
            v = personal[i]
            w = common[i]
            steps = epochs * math.ceil(len(nodes.members[i]) / nodes.batch_size)
            speed_of_v, speed_of_w = still(v), still(w)
            for step in range(t * steps, (t + 1) * steps):
                batch = batch_of(nodes, i, step, "local")
                of_mixture = gradient(mixture(v, w, alphas[i]), *batch)
                of_common = gradient(w, *batch)
                of_personal = [alphas[i] * g for g in of_mixture]
                if adaptive and step == t * steps:
                    pairs = zip(of_mixture, v.parameters(), w.parameters(), strict=True)
                    slope = sum(float((g * (a.data - b.data)).sum()) for g, a, b in pairs)
                    alphas[i] = min(1.0, max(0.0, alphas[i] - lr * lr_decay**t * slope))
                heavy_ball(v, speed_of_v, of_personal, lr=lr * lr_decay**t, **local)
                heavy_ball(w, speed_of_w, of_common, lr=lr * lr_decay**t, **local)
        own = [mixture(*models) for models in zip(personal, common, alphas, strict=True)]
        serve(nodes, common, members(t), lambda name: True)
        nodes.modules = [mixture(*models) for models in zip(personal, common, alphas, strict=True)]
    return own, alphas


def proxyfl(
    nodes, received, matrices, rounds, *, lr, weight, average, epochs=5, lr_decay=1.0, **local
):
    """ProxyFL; return the proxies, which nodes `average` with their own or replace."""
    modules = nodes.modules
    proxies = copy.deepcopy(modules)
    speeds = [(still(a), still(b)) for a, b in zip(modules, proxies, strict=True)]
    for t in range(rounds):
        for i, pair in enumerate(zip(modules, proxies, strict=True)):
            passed = epochs * math.ceil(len(nodes.members[i]) / nodes.batch_size)
            for step in range(t * passed, (t + 1) * passed):
                seen, labels = batch_of(nodes, i, step, "local")
                predicted = [module(seen).softmax(1) for module in pair]
                slopes = []
                for one, other in (predicted, predicted[::-1]):
                    divergence = (other.detach() * (other.detach() / one).log()).sum(1).mean()
                    right = one[range(len(labels)), labels]
                    loss = -(1 - weight) * right.log().mean() + weight * divergence
                    module = pair[len(slopes)]
                    slopes.append(torch.autograd.grad(loss, list(module.parameters())))
                for module, speed, slope in zip(pair, speeds[i], slopes, strict=True):
                    heavy_ball(module, speed, slope, lr=lr * lr_decay**t, **local)
        sent = [vector_of(module) for module in proxies]
        for i, module in enumerate(proxies):
            if average:
                put_vector(module, sum(w * x for w, x in zip(matrices[t][i], sent, strict=True)))
            elif received[t][i]:
                put_vector(module, sum(sent[j] for j in received[t][i]) / len(received[t][i]))
    return proxies


def vote(look, predicted, looks, labels, *, k, weight, scale):
    """Return the probabilities of an example by the model and by its k nearest neighbors."""
    distances = (looks - look).square().sum(1).tolist()
    nearest = sorted(range(len(looks)), key=lambda j: distances[j])[:k]
    kernels = {j: math.exp(-distances[j] / (len(look) * scale)) for j in nearest}
    found = torch.zeros_like(predicted)
    for j in nearest:
        found[labels[j]] += kernels[j] / sum(kernels.values())
    return weight * found + (1 - weight) * predicted


def knn_scores(nodes, i, indices, **how):
    """Return accuracy and loss of a module combined with neighbors in the node's training data.

    The last layer is the head.
    """
    *layers, head = nodes.modules[i]
    own, indices = torch.tensor(nodes.members[i]), torch.tensor(indices)
    labels = nodes.labels[own].tolist()
    with torch.no_grad():
        looks, seen = (nn.Sequential(*layers)(nodes.inputs[some]) for some in (own, indices))
        predicted = torch.softmax(head(seen), 1)
    votes = [vote(look, p, looks, labels, **how) for look, p in zip(seen, predicted, strict=True)]
    wanted = nodes.labels[indices].tolist()
    right = [int(p.argmax()) == y for p, y in zip(votes, wanted, strict=True)]
    return sum(right) / len(right), -sum(
        math.log(p[y]) for p, y in zip(votes, wanted, strict=True)
    ) / len(right)


def cosine(module, other, is_head):
    """Return the cosine of two heads, or 0 if one of them is zero."""
    a, b = (
        torch.cat([p.detach().flatten() for name, p in one.named_parameters() if is_head(name)])
        for one in (module, other)
    )
    lengths = float(a.norm() * b.norm())
    return float(a @ b) / lengths if lengths else 0.0


def standardized(values):
    """Scale values to [0, 1], or to 0 if all are equal; infinite ones stay."""
    finite = [value for value in values if math.isfinite(value)]
    differ = bool(finite) and max(finite) - min(finite) > 1e-9
    return [
        value
        if not math.isfinite(value)
        else (value - min(finite)) / (max(finite) - min(finite))
        if differ
        else 0.0
        for value in values
    ]


def scores(
    losses,
    cosines,
    ages,
    *,
    standardize=True,
    alpha=1.0,
    recency_rate=0.3,
    cost=None,
    header_sign="intended",
):
    """Return the scores S = s_p (alpha s_l - d + c) of one node's peers."""
    distances = [{"intended": 1 - cos, "literal": cos}[header_sign] for cos in cosines]
    if cost is None:
        cost = 2 if header_sign == "intended" and not standardize else 1
    if standardize:
        losses, distances = standardized(losses), standardized(distances)
    found = []
    for loss, distance, age in zip(losses, distances, ages, strict=True):
        recency = 1 if age is None else 1 - math.exp(-recency_rate * age)
        found.append(recency * ((alpha * loss if alpha else 0) - distance + cost))
    return found


def pfeddst(
    nodes,
    can_receive,
    rounds,
    *,
    lr,
    head_lr,
    draws,
    is_head,
    k=10,
    threshold=None,
    loss_refresh="selected",
    epochs=5,
    head_epochs=1,
    lr_decay=1.0,
    scoring=None,
    **local,
):
    """Return from which nodes each receives per round; the least draws(t)[i][j] breaks ties."""
    n, is_body = len(nodes.modules), lambda name: not is_head(name)
    losses = {}
    last = {}
    history = []
    for t in range(rounds):
        chosen = []
        for i in range(n):
            peers = can_receive[i]
            known = [0.0 if loss_refresh == "none" else losses.get((i, j), math.inf) for j in peers]
            cosines = [cosine(nodes.modules[i], nodes.modules[j], is_head) for j in peers]
            ages = [t - last[i, j] if (i, j) in last else None for j in peers]
            found = dict(zip(peers, scores(known, cosines, ages, **scoring or {}), strict=True))
            able = [j for j in found if threshold is None or found[j] > threshold]
            best = sorted(able, key=lambda j: (-found[j], draws(t)[i][j]))
            chosen.append(sorted(best if k is None else best[:k]))
        weights = np.zeros((n, n))
        for i in range(n):
            for j in [i, *chosen[i]]:
                weights[i, j] = 1 / (len(chosen[i]) + 1)
            for j in chosen[i]:
                last[i, j] = t
        average(nodes.modules, weights, is_body)
        tries = {"selected": chosen, "all": can_receive, "none": [[] for _ in range(n)]}[
            loss_refresh
        ]
        for i in range(n):
            for j in tries[i]:
                own = list(nodes.members[j])
                outputs = nodes.modules[i](nodes.inputs[own]).detach()
                losses[i, j] = float(functional.cross_entropy(outputs, nodes.labels[own]))
        for i in range(n):
            passes(nodes, i, t, "body", epochs, lr * lr_decay**t, trains=is_body, **local)
            passes(nodes, i, t, "head", head_epochs, head_lr * lr_decay**t, trains=is_head, **local)
        history.append(chosen)
    return history


def turning(parameters, toward):
    """Return gradients of -<toward, theta> / ||theta||."""
    theta = torch.cat([p.flatten() for p in parameters])
    return torch.autograd.grad(-(toward @ theta) / theta.norm(), parameters)


def nearest_weights(wanted):
    """Project onto the simplex: subtract the amount after which the positive parts sum to 1.

    The amount is found by bisection.
    """
    low, high = min(wanted) - 1, max(wanted)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(max(w - middle, 0) for w in wanted) > 1 else (low, middle)
    return [max(w - low, 0) for w in wanted]


def similarity(one, other, threshold):
    """Return the cosine of two model changes: 1 above the threshold, 0 without a change."""
    lengths = float(one.norm() * other.norm())
    cosine = float(one @ other) / lengths if lengths else 0.0
    return 1.0 if cosine > threshold else cosine


def pfedgraph(
    nodes,
    rounds,
    *,
    lr,
    receives=None,
    strength=0.8,
    regulariser=0.01,
    threshold=0.9,
    epochs=5,
    lr_decay=1.0,
    **local,
):
    """Return the weights of every round; node i receives from hears[i], which includes i.

    With the sign of the authors' code, the regulariser is below 0.
    """
    n = len(nodes.modules)
    sizes = [len(own) for own in nodes.members]
    start = nodes.flat()[0]
    toward, found = [None] * n, []
    for t in range(rounds):
        for i in range(n):
            passes(nodes, i, t, "local", epochs, lr * lr_decay**t, toward=toward[i], **local)
        flat = nodes.flat()
        weights = np.zeros((n, n))
        for i in range(n):
            group = list(range(n)) if receives is None else receives[i]
            data = [sizes[j] / sum(sizes[k] for k in group) for j in group]
            alike = [similarity(flat[i] - start, flat[j] - start, threshold) for j in group]
            weights[i, group] = nearest_weights(
                [p + s / (2 * strength) for p, s in zip(data, alike, strict=True)]
            )
        toward = [
            regulariser * sum(weights[i, j] * flat[j] / flat[j].norm() for j in range(n))
            for i in range(n)
        ]
        average(nodes.modules, weights)
        found.append(weights)
    return found


def dsgt(nodes, weights, rounds, *, lr):
    """Gradient tracking.

    x <- W (x - lr y) after y <- W y + g - the gradient of the previous round.
    """
    tracked = [still(module) for module in nodes.modules]
    before = [still(module) for module in nodes.modules]
    for t in range(rounds):
        for i, module in enumerate(nodes.modules):
            g = nodes.gradient(i, t)
            tracked[i] = [
                y + new - old for y, new, old in zip(tracked[i], g, before[i], strict=True)
            ]
            before[i] = g
            for p, y in zip(module.parameters(), tracked[i], strict=True):
                p.data.sub_(lr(t, 0) * y)
        average(nodes.modules, weights)
        tracked = mixed(weights, tracked)


def momentum_tracking(nodes, weights, rounds, *, lr, momentum):
    """Momentum Tracking, as its authors store it: momentum m, and c, which is m minus the tracked.

    x <- W x - lr (m - c), then c <- W (c - m) + m.
    """
    momenta = [still(module) for module in nodes.modules]
    corrections = [still(module) for module in nodes.modules]
    for t in range(rounds):
        g = [nodes.gradient(i, t) for i in range(len(nodes.modules))]
        momenta = combined(lambda m, now: momentum * m + now, momenta, g)
        average(nodes.modules, weights)
        for module, m, c in zip(nodes.modules, momenta, corrections, strict=True):
            for p, m_p, c_p in zip(module.parameters(), m, c, strict=True):
                p.data.sub_(lr(t, 0) * (m_p - c_p))
        apart = combined(lambda c, m: c - m, corrections, momenta)
        corrections = combined(lambda c, m: c + m, mixed(weights, apart), momenta)


def scaffold(nodes, members, rounds, *, lr, epochs):
    """SCAFFOLD; a control becomes the mean gradient of its node's steps.

    That mean is computed from the change of the model.
    """
    n = len(nodes.modules)
    controls = [still(module) for module in nodes.modules]
    for t in range(rounds):
        common = [sum(c[k] for c in controls) / n for k in range(len(controls[0]))]
        for i in members(t):
            module, start = nodes.modules[i], copy.deepcopy(nodes.modules[i])
            steps = epochs * math.ceil(len(nodes.members[i]) / nodes.batch_size)
            for k in range(steps):
                g = gradient(module, *batch_of(nodes, i, t * steps + k, "local"))
                for p, g_p, c, c_i in zip(module.parameters(), g, common, controls[i], strict=True):
                    p.data.sub_(lr(t, k) * (g_p + c - c_i))
            length = sum(lr(t, k) for k in range(steps))
            controls[i] = [
                c_i - c + (x.data - y.data) / length
                for c_i, c, x, y in zip(
                    controls[i], common, start.parameters(), module.parameters(), strict=True
                )
            ]
        serve_equally(nodes, members(t))


def serve_equally(nodes, active):
    """Set all models to the unweighted mean over participants."""
    weights = np.zeros((len(nodes.modules), len(nodes.modules)))
    weights[:, active] = 1 / len(active)
    average(nodes.modules, weights)


def robust(nodes, weights, rounds, *, lr, rule, momentum=0.0, local_steps=1, alpha=None):
    """D-SGD in which a rule aggregates the received models, as lists of numbers.

    With `alpha`, running averages of gradients replace heavy-ball momentum.
    """
    averages = [still(module) for module in nodes.modules]
    for t in range(rounds):
        for i, module in enumerate(nodes.modules):
            for k in range(local_steps):
                g = nodes.gradient(i, t * local_steps + k)
                if alpha is not None:
                    averages[i] = [
                        (1 - alpha) * m + alpha * g_p for m, g_p in zip(averages[i], g, strict=True)
                    ]
                    g = averages[i]
                descend(module, nodes.velocities[i], g, lr, momentum)
        sent = nodes.flat().tolist()
        for i, module in enumerate(nodes.modules):
            received = [j for j in range(len(sent)) if j != i and weights[i, j] != 0]
            made = rule(sent[i], [sent[j] for j in received], [weights[i, j] for j in received])
            put_vector(module, torch.tensor(made, dtype=torch.float64))


def fltrust(nodes, weights, rounds, *, lr, momentum=0.0, local_steps=1):
    """D-SGD in which each node trusts received models by their direction as seen from its last."""
    for t in range(rounds):
        last = nodes.flat().tolist()
        for i, module in enumerate(nodes.modules):
            for k in range(local_steps):
                g = nodes.gradient(i, t * local_steps + k)
                descend(module, nodes.velocities[i], g, lr, momentum)
        sent = nodes.flat().tolist()
        for i, module in enumerate(nodes.modules):
            mine = [x - y for x, y in zip(sent[i], last[i], strict=True)]
            length = math.hypot(*mine)
            total, moved = 1.0, mine
            for j in range(len(sent)):
                if j == i or weights[i, j] == 0:
                    continue
                theirs = [x - y for x, y in zip(sent[j], last[i], strict=True)]
                product = sum(x * y for x, y in zip(mine, theirs, strict=True))
                trust = max(0.0, product / (length * math.hypot(*theirs)))
                scale = trust * length / math.hypot(*theirs)
                moved = [x + scale * y for x, y in zip(moved, theirs, strict=True)]
                total += trust
            made = [x + y / total for x, y in zip(last[i], moved, strict=True)]
            put_vector(module, torch.tensor(made, dtype=torch.float64))


def clipping(tau=None, delta=None):
    """Return the rule that adds weighted differences, clipped to a radius.

    If no radius is given, it is computed from the nearest neighbors.
    """

    def rule(own, received, weights):
        apart = [[theirs - mine for theirs, mine in zip(row, own, strict=True)] for row in received]
        lengths = [math.sqrt(sum(x * x for x in row)) for row in apart]
        radius = tau if delta is None else found(lengths, weights)
        made = list(own)
        for row, length, share in zip(apart, lengths, weights, strict=True):
            factor = 1 if length <= radius else radius / length
            made = [mine + share * factor * x for mine, x in zip(made, row, strict=True)]
        return made

    def found(lengths, weights):
        nearest = sorted(zip(lengths, weights, strict=True))
        gone = 0.0
        while nearest and gone < delta - 1e-9:
            gone += nearest.pop()[1]
        return math.sqrt(sum(share * length**2 for length, share in nearest) / delta)

    return rule


def medians(own, received, weights):
    """Return coordinate-wise medians."""
    return [statistics.median(values) for values in zip(own, *received, strict=True)]


def trimming(trim):
    """Return the rule of coordinate-wise means of the own value and the non-extreme others."""

    def rule(own, received, weights):
        made = []
        for mine, *theirs in zip(own, *received, strict=True):
            left = sorted(theirs)
            for _ in range(trim):
                left = left[1:-1]
            made.append((mine + sum(left)) / (1 + len(left)))
        return made

    return rule


def apart(one, other):
    """Return the squared distance of two rows."""
    return sum((x - y) ** 2 for x, y in zip(one, other, strict=True))


def mean_row(rows):
    """Return the mean of rows."""
    return [sum(column) / len(column) for column in zip(*rows, strict=True)]


def by_krum(rows, attackers):
    """Return indices of rows in the order of Krum's scores."""
    closest = max(1, len(rows) - attackers - 2)
    scores = []
    for i, row in enumerate(rows):
        distances = sorted(apart(row, other) for j, other in enumerate(rows) if j != i)
        scores.append(sum(distances[:closest]))
    return sorted(range(len(rows)), key=scores.__getitem__)


def choosing(attackers, select=1):
    """Return the rule of the mean of the rows of Krum's smallest scores."""

    def rule(own, received, weights):
        rows = [own, *received]
        return mean_row([rows[i] for i in by_krum(rows, attackers)[:select]])

    return rule


def bulyan(attackers):
    """Return Bulyan's rule: Krum chooses rows, one by one, and values near medians are averaged."""

    def rule(own, received, weights):
        left, chosen = [own, *received], []
        for _ in range(len(left) - 2 * attackers):
            chosen.append(left.pop(by_krum(left, attackers)[0]))
        made = []
        for column in zip(*chosen, strict=True):
            median = statistics.median(column)
            nearest = sorted(column, key=lambda value, median=median: abs(value - median))
            made.append(statistics.fmean(nearest[: len(chosen) - 2 * attackers]))
        return made

    return rule


def weiszfeld(iterations, smoothing=1e-5):
    """Return the rule of smoothed Weiszfeld steps from the mean."""

    def rule(own, received, weights):
        rows = [own, *received]
        median = mean_row(rows)
        for _ in range(iterations):
            shares = [1 / max(smoothing, math.sqrt(apart(median, row))) for row in rows]
            median = [
                sum(b * x for b, x in zip(shares, column, strict=True)) / sum(shares)
                for column in zip(*rows, strict=True)
            ]
        return median

    return rule


def numbered(phase, group):
    """Return the name of a stream of minibatches.

    It is the phase's name, followed by the number of the group of events after the first.
    """
    return phase if group == 1 else f"{phase}/{group}"


def ad_psgd(nodes, neighbors, rounds, *, lr, compute, delay):
    """AD-PSGD, event by event; return seconds and staleness.

    compute(rng, i) and delay(rng, i, j) are seconds.
    """
    n = len(nodes.modules)
    busy = {}
    done = 0
    told = []

    def begin(i, now, rng):
        j = neighbors[i][rng.integers(len(neighbors[i]))]
        exchange = max(delay(rng, i, j), delay(rng, j, i))
        end = now + max(compute(rng, i), exchange)
        busy[i] = (end, i, j, copy.deepcopy(nodes.modules[i]), done)

    for t in range(rounds):
        rng = stream(nodes.seed, "events", t)
        group = 1
        seen = set()
        stale = 0
        if t == 0:
            for i in range(n):
                begin(i, 0.0, rng)
        for _ in range(n):
            now, i, j, old, since = min(busy.values(), key=lambda one: one[:2])
            if i in seen:
                group = group + 1
                seen = set()
            seen.add(i)
            g = gradient(old, *batch_of(nodes, i, t, numbered("events", group)))
            for p, q, g_p in zip(
                nodes.modules[i].parameters(), nodes.modules[j].parameters(), g, strict=True
            ):
                mean = (p.data + q.data) / 2
                q.data.copy_(mean)
                p.data.copy_(mean - lr * g_p)
            stale = max(stale, done - since)
            done = done + 1
            begin(i, now, rng)
        told.append((now, stale))
    return told


def served(nodes, rounds, *, lr, receive, compute, delay, active=None, epochs=1, **local):
    """Let a server receive updates, event by event; return seconds and staleness.

    receive(x, sent, pulled, stale) returns the server's vector after an arrival, and whether it is
    a new version; compute(rng, i) and delay(rng, i, j) are seconds.
    """
    n, x = len(nodes.modules), nodes.flat()[0]
    busy, told, version = {}, [], 0

    def begin(i, now, rng):
        steps = epochs * math.ceil(len(nodes.members[i]) / nodes.batch_size)
        end = now + delay(rng, i, i) + delay(rng, i, i) + sum(compute(rng, i) for _ in range(steps))
        busy[i] = (end, i, x.clone(), version)

    for t in range(rounds):
        rng = stream(nodes.seed, "events", t)
        group, seen, worst = 1, set(), 0
        if t == 0:
            for i in range(n) if active is None else rng.permutation(n)[:active].tolist():
                begin(i, 0.0, rng)
        for _ in range(n):
            now, i, pulled, since = min(busy.values(), key=lambda one: one[:2])
            del busy[i]
            idle = [k for k in range(n) if k not in busy]
            j = i if active is None else idle[rng.integers(len(idle))]
            if {i, j} & seen:
                group, seen = group + 1, set()
            seen |= {i, j}
            module = nodes.modules[i]
            put_vector(module, pulled.clone())
            anchor = copy.deepcopy(module)
            passes(nodes, i, t, numbered("events", group), epochs, lr, anchor=anchor, **local)
            worst = max(worst, version - since)
            x, is_new = receive(x, nodes.flat()[i], pulled, version - since)
            version = version + is_new
            begin(j, now, rng)
        told.append((now, worst))
        for module in nodes.modules:
            put_vector(module, x.clone())
    return told


def fedasync(nodes, rounds, *, alpha, weigh, **how):
    """FedAsync, whose server mixes what arrives with its model."""

    def receive(x, sent, pulled, stale):
        a = alpha * weigh(stale)
        return (1 - a) * x + a * sent, True

    return served(nodes, rounds, receive=receive, **how)


def fedbuff(nodes, rounds, *, buffer, server_lr, weigh, **how):
    """FedBuff, whose server waits for `buffer` updates."""
    waiting = []

    def receive(x, sent, pulled, stale):
        waiting.append(weigh(stale) * (sent - pulled))
        if len(waiting) < buffer:
            return x, False
        x = x + server_lr * sum(waiting) / buffer
        waiting.clear()
        return x, True

    return served(nodes, rounds, receive=receive, **how)


def random_walks(nodes, weights, rounds, *, lr, walks, merge, compute, delay):
    """Random walks, event by event; return the seconds and the number of moves per round."""
    n = len(nodes.modules)
    works = set()
    told = []
    waiting = [[] for _ in range(n)]
    start = stream(nodes.seed, "walks", 0).permutation(n)[:walks].tolist()
    models = [copy.deepcopy(nodes.modules[i]) for i in start]
    came = [copy.deepcopy(m) for m in nodes.modules]
    due = {r: (0.0, r, "arrives", i) for r, i in enumerate(start)}
    for t in range(rounds):
        rng = stream(nodes.seed, "events", t)
        group = 1
        seen = set()
        steps = 0
        moves = 0
        while steps < n:
            now, r, what, i = min(due.values())
            del due[r]
            if what == "arrives":
                waiting[i].append((now, r))
            else:
                if ("walk", r) in seen or ("node", i) in seen:
                    group = group + 1
                    seen = set()
                seen |= {("walk", r), ("node", i)}
                if merge:
                    before, came[i] = came[i], copy.deepcopy(models[r])
                    for p, old in zip(models[r].parameters(), before.parameters(), strict=True):
                        p.data.copy_((p.data + old.data) / 2)
                g = gradient(models[r], *batch_of(nodes, i, t, numbered("events", group)))
                for p, g_p in zip(models[r].parameters(), g, strict=True):
                    p.data.sub_(lr * g_p)
                nodes.modules[i] = copy.deepcopy(models[r])
                point, j = rng.random() * weights[i].sum(), 0
                while point >= weights[i, : j + 1].sum():
                    j += 1
                due[r] = (now + (delay(rng, i, j) if j != i else 0.0), r, "arrives", j)
                steps, moves = steps + 1, moves + (i != j)
                works.remove(i)
            if waiting[i] and i not in works:
                first = min(waiting[i])
                waiting[i].remove(first)
                works.add(i)
                due[first[1]] = (now + compute(rng, i), first[1], "is done", i)
        told.append((now, moves))
    return told


def qg_dsgdm(
    nodes, weights, rounds, *, lr, momentum, global_momentum, nesterov=False, weight_decay=0.0
):
    """QG-DSGDm: d follows the change of a node's model over a round, including the exchange."""
    followed = [still(module) for module in nodes.modules]
    for t in range(rounds):
        starts = [copied(module) for module in nodes.modules]
        for i, module in enumerate(nodes.modules):
            for p, g, d in zip(module.parameters(), nodes.gradient(i, t), followed[i], strict=True):
                g = g + weight_decay * p.data
                m = momentum * d + g
                p.data.sub_(lr(t, 0) * (g + momentum * m if nesterov else m))
        average(nodes.modules, weights)
        for i, module in enumerate(nodes.modules):
            followed[i] = [
                global_momentum * d + (1 - global_momentum) * (before - p.detach()) / lr(t, 0)
                for d, before, p in zip(followed[i], starts[i], module.parameters(), strict=True)
            ]


def dfedsam(nodes, weights, rounds, *, lr, radius, gossip_steps=1, epochs=5, lr_decay=1.0, **local):
    """DFedSAM: each step uses the gradient at a point uphill, on the same minibatch."""
    for t in range(rounds):
        for i, module in enumerate(nodes.modules):
            velocity = still(module)
            steps = epochs * math.ceil(len(nodes.members[i]) / nodes.batch_size)
            for step in range(t * steps, (t + 1) * steps):
                batch = batch_of(nodes, i, step, "local")
                uphill = copy.deepcopy(module)
                first = gradient(module, *batch)
                norm = math.sqrt(sum(float(g.square().sum()) for g in first))
                for p, g in zip(uphill.parameters(), first, strict=True):
                    p.data.add_(radius * g / (norm + 1e-12))
                heavy_ball(module, velocity, gradient(uphill, *batch), lr=lr * lr_decay**t, **local)
        for _ in range(gossip_steps):
            average(nodes.modules, weights)


def dadam(
    nodes, weights, rounds, *, lr, local_steps=1, beta1=0.9, beta2=0.999, eps=1e-8, decay=0.0
):
    """Adam at every node with torch, then gossip."""
    optimizers = [
        torch.optim.AdamW(module.parameters(), betas=(beta1, beta2), eps=eps, weight_decay=decay)
        for module in nodes.modules
    ]
    for t in range(rounds):
        for i, module in enumerate(nodes.modules):
            for k in range(local_steps):
                g = nodes.gradient(i, t * local_steps + k)
                for p, own in zip(module.parameters(), g, strict=True):
                    p.grad = own
                optimizers[i].param_groups[0]["lr"] = lr(t, k)
                optimizers[i].step()
        average(nodes.modules, weights)


def divshare(nodes, can_receive, rounds, *, lr, fragments, degree, local_steps):
    """Return the peers from which each node received any fragment, per round."""
    n = len(nodes.modules)
    sizes = [p.numel() for p in nodes.modules[0].parameters()]
    rng, start, parts = stream(nodes.seed, "fragments", 0), 0, [[] for _ in range(fragments)]
    for size in sizes:
        order, width = rng.permutation(size).tolist(), size // fragments
        for k in range(size):
            part = fragments - 1 if width == 0 else min(order[k] // width, fragments - 1)
            parts[part].append(start + k)
        start += size
    told = []
    for t in range(rounds):
        for i in range(n):
            steps_from_rest(nodes, i, t, lr, 0.0, local_steps)
        sent = [vector_of(module) for module in nodes.modules]
        new, senders = [vector.clone() for vector in sent], [set() for _ in range(n)]
        draws = stream(nodes.seed, "recipients", t)
        for places in parts:
            keys = draws.random((n, n))
            arrived = [[] for _ in range(n)]
            for j in range(n):
                able = [i for i in range(n) if i != j and j in can_receive[i]]
                for i in sorted(able, key=lambda i: keys[j, i])[:degree]:
                    arrived[i].append(j)
                    senders[i].add(j)
            for i in range(n):
                total = sent[i][places] + sum(sent[j][places] for j in arrived[i])
                new[i][places] = total / (1 + len(arrived[i]))
        for module, vector in zip(nodes.modules, new, strict=True):
            put_vector(module, vector)
        told.append([sorted(own) for own in senders])
    return told


def noloco(nodes, matrices, rounds, *, lr, local_steps, outer_lr, outer_momentum, **how):
    """NoLoCo as in the author's code: mean models and mean changes are averaged apart."""
    optimizers = adam_of(nodes, torch.optim.Adam, **how)
    momenta = [still(module) for module in nodes.modules]
    for t in range(rounds):
        starts = [copied(module) for module in nodes.modules]
        for i, optimizer in enumerate(optimizers):
            adam_steps(nodes, i, t, optimizer, lr=lr, steps=local_steps)
        moved = [
            [p.detach() - p_old for p, p_old in zip(module.parameters(), start, strict=True)]
            for module, start in zip(nodes.modules, starts, strict=True)
        ]
        mean, mean_change = (mixed(matrices[t], values) for values in (starts, moved))
        for i, module in enumerate(nodes.modules):
            for k, p in enumerate(module.parameters()):
                pull = mean[i][k] - starts[i][k]
                momenta[i][k] = (
                    outer_momentum * momenta[i][k] + outer_lr * mean_change[i][k] + outer_lr * pull
                )
                p.data.copy_(starts[i][k] + momenta[i][k])


def adam_of(nodes, optimizer, *, beta1=0.9, beta2=0.999, eps=1e-8, **how):
    """Return an optimizer of torch for each node."""
    how = {"lr": 0.1, "betas": (beta1, beta2), "eps": eps} | how
    return [optimizer(module.parameters(), **how) for module in nodes.modules]


def adam_steps(nodes, i, t, optimizer, *, lr, steps, clip=None):
    """Take the local steps of round t at one node."""
    module = nodes.modules[i]
    for k in range(steps):
        g = nodes.gradient(i, t * steps + k)
        for p, own in zip(module.parameters(), g, strict=True):
            p.grad = own
        if clip is not None:
            nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.param_groups[0]["lr"] = lr(t, k)
        optimizer.step()


def damsgrad(
    nodes, weights, rounds, *, lr, local_steps=1, beta1=0.9, beta2=0.999, eps=1e-8, decay=0.0
):
    """AMSGrad with averaged denominators u.

    u changes by the change of h, the node's largest mean square so far.
    """
    m = [still(module) for module in nodes.modules]
    v = [still(module) for module in nodes.modules]
    h, u = ([[z + eps for z in still(module)] for module in nodes.modules] for _ in range(2))
    for t in range(rounds):
        for i, module in enumerate(nodes.modules):
            for step in range(local_steps):
                g = nodes.gradient(i, t * local_steps + step)
                for k, p in enumerate(module.parameters()):
                    m[i][k] = beta1 * m[i][k] + (1 - beta1) * g[k]
                    v[i][k] = beta2 * v[i][k] + (1 - beta2) * g[k] ** 2
                    denominator = torch.sqrt(torch.clamp(u[i][k], min=eps))
                    p.data.sub_(lr(t, step) * (m[i][k] / denominator + decay * p.data))
                    largest = torch.maximum(h[i][k], v[i][k])
                    u[i][k] = u[i][k] + largest - h[i][k]
                    h[i][k] = largest
        average(nodes.modules, weights)
        u = mixed(weights, u)


def relay_sgd(nodes, hops, rounds, *, lr, momentum=0.0, local_steps=1):
    """RelaySGD: average all nodes' models after local steps, each delayed by hops - 1 rounds.

    A node's own model replaces those that have not arrived yet.
    """
    n, made = len(nodes.modules), []
    for t in range(rounds):
        for i, module in enumerate(nodes.modules):
            for k in range(local_steps):
                g = nodes.gradient(i, t * local_steps + k)
                descend(module, nodes.velocities[i], g, lr, momentum)
        made.append(nodes.flat())
        for i, module in enumerate(nodes.modules):
            since = [t - max(int(hops[i][j]) - 1, 0) for j in range(n)]
            known = [made[since[j]][j] if since[j] >= 0 else made[t][i] for j in range(n)]
            put_vector(module, sum(known) / n)


def copied(module):
    return [p.detach().clone() for p in module.parameters()]


def mixed(weights, values):
    """Return sum_j W[i, j] values[j] for every node i; values[j] holds node j's parameters."""
    return [
        [
            sum(w * value[k] for w, value in zip(row, values, strict=True))
            for k in range(len(values[0]))
        ]
        for row in weights.tolist()
    ]


def put(modules, values):
    for module, value in zip(modules, values, strict=True):
        for p, new in zip(module.parameters(), value, strict=True):
            p.data.copy_(new)


def combined(function, *values):
    """Return function(a, b, ...) for every parameter of every node."""
    return [
        [function(*numbers) for numbers in zip(*nodes, strict=True)]
        for nodes in zip(*values, strict=True)
    ]


def local_gt(nodes, weights, rounds, *, lr, local_steps, global_lr=1.0):
    """K-GT: K corrected steps; z is the change of the model over -K lr.

    c <- c - z + W z;  x <- W (x - global_lr K lr z).
    """
    corrections = [still(module) for module in nodes.modules]
    for t in range(rounds):
        start = [copied(module) for module in nodes.modules]
        for i, module in enumerate(nodes.modules):
            for k in range(local_steps):
                g = nodes.gradient(i, t * local_steps + k)
                for p, g_p, c in zip(module.parameters(), g, corrections[i], strict=True):
                    p.data.sub_(lr(t, k) * (g_p + c))
        length = sum(lr(t, k) for k in range(local_steps))
        end = [copied(module) for module in nodes.modules]
        z = combined(lambda x, y, length=length: (x - y) / length, start, end)
        corrections = combined(
            lambda c, own, mean: c - own + mean, corrections, z, mixed(weights, z)
        )
        x = combined(lambda x, own, far=global_lr * length: x - far * own, start, z)
        put(nodes.modules, mixed(weights, x))


def extra(nodes, weights, rounds, *, lr):
    """EXTRA: X2 = W X1 + r (X1 - V X0) - lr (G1 - G0), X1 = W X0 - lr G0.

    r is lr divided by the previous lr; the published form has r = 1.
    """
    lazy = (np.eye(len(nodes.modules)) + weights) / 2
    x_before = []
    g_before = []
    for t in range(rounds):
        x = [copied(module) for module in nodes.modules]
        g = [nodes.gradient(i, t) for i in range(len(nodes.modules))]
        new = combined(lambda wx, g1, t=t: wx - lr(t, 0) * g1, mixed(weights, x), g)
        if t > 0:
            r = lr(t, 0) / lr(t - 1, 0)
            rate = lr(t, 0)
            both = mixed(lazy, x_before), g_before
            new = combined(
                lambda y, x1, vx, g0, r=r, rate=rate: y + r * (x1 - vx) + rate * g0, new, x, *both
            )
        put(nodes.modules, new)
        x_before, g_before = x, g


def d2(nodes, weights, rounds, *, lr, lazy=True, momentum=0.0):
    """D^2: X2 = V (X1 + r (X1 - X0) - lr (G1 - G0)), X1 = V (X0 - lr G0).

    r is lr divided by the previous lr; the published form has r = 1. With momentum, as in EDM, G
    are running averages of gradients.
    """
    v = (np.eye(len(nodes.modules)) + weights) / 2 if lazy else weights
    x_before = []
    g_before = [still(module) for module in nodes.modules]
    for t in range(rounds):
        x = [copied(module) for module in nodes.modules]
        g = [nodes.gradient(i, t) for i in range(len(nodes.modules))]
        g = combined(lambda m, now: momentum * m + (1 - momentum) * now, g_before, g)
        new = combined(lambda x1, g1, t=t: x1 - lr(t, 0) * g1, x, g)
        if t > 0:
            r = lr(t, 0) / lr(t - 1, 0)
            rate = lr(t, 0)
            both = x_before, g_before
            new = combined(
                lambda y, x1, x0, g0, r=r, rate=rate: y + r * (x1 - x0) + rate * g0, new, x, *both
            )
        put(nodes.modules, mixed(v, new))
        x_before, g_before = x, g


def led(nodes, weights, rounds, *, lr, local_steps, dual_lr=1.0, lazy=True):
    """LED: K corrected steps from x to y, x <- V y, c <- c + dual_lr / (K lr) (y - V y)."""
    v = (np.eye(len(nodes.modules)) + weights) / 2 if lazy else weights
    corrections = [still(module) for module in nodes.modules]
    for t in range(rounds):
        for i in range(len(nodes.modules)):
            for k in range(local_steps):
                corrected_step(nodes, i, t * local_steps + k, corrections[i], lr(t, k))
        length = sum(lr(t, k) for k in range(local_steps))
        corrections = average_and_correct(nodes, v, corrections, dual_lr / length)


def proxskip(nodes, weights, rounds, *, lr, probability, dual_lr=1.0):
    """Decentralized ProxSkip; return the messages per round, as many as edges or none."""
    v = (np.eye(len(nodes.modules)) + weights) / 2
    corrections = [still(module) for module in nodes.modules]
    told = []
    for t in range(rounds):
        for i in range(len(nodes.modules)):
            corrected_step(nodes, i, t, corrections[i], lr(t, 0))
        exchanges = stream(nodes.seed, "exchange", t).random() < probability
        if exchanges:
            beta = dual_lr * probability
            corrections = average_and_correct(nodes, v, corrections, beta / lr(t, 0))
        told.append(np.count_nonzero(v - np.diag(np.diag(v))) * exchanges)
    return told


def corrected_step(nodes, i, step, correction, rate):
    """Take the step x <- x - rate (g + c) at node i."""
    g = nodes.gradient(i, step)
    for p, g_p, c in zip(nodes.modules[i].parameters(), g, correction, strict=True):
        p.data.sub_(rate * (g_p + c))


def average_and_correct(nodes, v, corrections, strength):
    """Average the models y, and return the corrections c + strength (y - V y)."""
    y = [copied(module) for module in nodes.modules]
    x = mixed(v, y)
    put(nodes.modules, x)
    return combined(lambda c, own, mean: c + strength * (own - mean), corrections, y, x)


def nids(nodes, weights, rounds, *, lr):
    """NIDS without a proximal term: x1 = x0 - lr g0, x2 = V (2 x1 - x0 - lr (g1 - g0))."""
    v = (np.eye(len(nodes.modules)) + weights) / 2
    x_before, g_before = [], []
    for t in range(rounds):
        x = [copied(module) for module in nodes.modules]
        g = [nodes.gradient(i, t) for i in range(len(nodes.modules))]
        if t == 0:
            put(nodes.modules, combined(lambda x0, g0: x0 - lr(0, 0) * g0, x, g))
        else:
            rate = lr(t, 0)
            far = combined(
                lambda x1, x0, g1, g0, rate=rate: 2 * x1 - x0 - rate * (g1 - g0),
                *(x, x_before, g, g_before),
            )
            put(nodes.modules, mixed(v, far))
        x_before, g_before = x, g


def dinno(nodes, weights, rounds, *, lr, penalty, local_steps):
    """DiNNO: K steps on f + <p, x> + penalty sum_j w_ij ||x - (x_i + x_j) / 2||^2, from x = x_i.

    Before them, p <- p + penalty sum_j w_ij (x_i - x_j), except in the first round, in which nodes
    have not received anything, and x_j is taken to be x_i.
    """
    n = len(nodes.modules)
    p = [still(module) for module in nodes.modules]
    for t in range(rounds):
        x = [copied(module) for module in nodes.modules]
        for i, module in enumerate(nodes.modules):
            known = {j: x[j] if t > 0 else x[i] for j in range(n) if j != i}
            for j, other in known.items():
                w = weights[i, j]
                p[i] = [
                    dual + penalty * w * (own - far)
                    for dual, own, far in zip(p[i], x[i], other, strict=True)
                ]
            for k in range(local_steps):
                g = nodes.gradient(i, t * local_steps + k)
                for place, now in enumerate(module.parameters()):
                    direction = g[place] + p[i][place]
                    for j, other in known.items():
                        middle = (x[i][place] + other[place]) / 2
                        direction = direction + 2 * penalty * weights[i, j] * (now.data - middle)
                    now.data.sub_(lr(t, k) * direction)


def gt_hsgd(nodes, weights, rounds, *, lr, beta, frozen=()):
    """GT-HSGD: v <- g + (1 - beta) (v - g at the previous x), y <- W (y + v - the previous v).

    Then x <- W (x - lr y). Frozen nodes exchange, without gradients and steps of their own.
    """
    tracked = [still(module) for module in nodes.modules]
    v = [still(module) for module in nodes.modules]
    x_before = []

    def gradients(t):
        return [
            still(module) if i in frozen else nodes.gradient(i, t)
            for i, module in enumerate(nodes.modules)
        ]

    for t in range(rounds):
        x = [copied(module) for module in nodes.modules]
        new = gradients(t)
        if t > 0:
            put(nodes.modules, x_before)
            old = gradients(t)
            new = combined(lambda a, kept, b: a + (1 - beta) * (kept - b), new, v, old)
        moved = combined(lambda y, now, then: y + now - then, tracked, new, v)
        tracked = mixed(weights, moved)
        rate = lr(t, 0)
        far = combined(lambda own, y, rate=rate: own - rate * y, x, tracked)
        for i in frozen:
            far[i] = x[i]
        put(nodes.modules, mixed(weights, far))
        x_before, v = x, new


def demuon(nodes, weights, rounds, *, lr, momentum, iterations, frozen=()):
    """DeMuon: y <- W (y + m' - m) of averages m of gradients, x <- W (x - lr D(y)).

    Frozen nodes exchange, without gradients and steps of their own.
    """
    n = len(nodes.modules)
    tracked = [still(module) for module in nodes.modules]
    averages = [still(module) for module in nodes.modules]
    for t in range(rounds):
        g = [still(nodes.modules[i]) if i in frozen else nodes.gradient(i, t) for i in range(n)]
        new = combined(lambda m, now: momentum * m + (1 - momentum) * now, averages, g)
        moved = combined(lambda y, now, then: y + now - then, tracked, new, averages)
        tracked, averages = mixed(weights, moved), new
        ways = combined(lambda y: orthogonal(y, iterations), tracked)
        x = [copied(module) for module in nodes.modules]
        far = combined(lambda own, way, t=t: own - lr(t, 0) * way, x, ways)
        for i in frozen:
            far[i] = x[i]
        put(nodes.modules, mixed(weights, far))


def orthogonal(y, iterations):
    """Return a matrix with singular values pushed to 1 by a polynomial, a vector by its norm.

    The polynomial acts on the singular values, from a decomposition that the method does not need.
    """
    y = y.detach()
    own = y.squeeze()
    if own.ndim < 2:
        norm = float(own.norm())
        return y / norm if norm > 0 else torch.zeros_like(y)
    u, s, vt = torch.linalg.svd(own.reshape(own.shape[0], -1), full_matrices=False)
    s = s / (float(own.norm()) + 1e-7)
    for _ in range(iterations):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return (u @ torch.diag(s) @ vt).reshape(y.shape)


def push_diging(nodes, matrices, rounds, *, lr):
    """Push-DIGing: u <- P (u - lr y), v <- P v, x = u / v; return v.

    Then y <- P y + g - the gradient of the previous round.
    """
    n = len(nodes.modules)
    v = np.ones(n)
    tracked = [still(m) for m in nodes.modules]
    before = [still(m) for m in nodes.modules]
    for t in range(rounds):
        g = [nodes.gradient(i, t) for i in range(n)]
        tracked = combined(lambda y, new, old: y + new - old, tracked, g, before)
        u = [[v[i] * x for x in copied(module)] for i, module in enumerate(nodes.modules)]
        u = mixed(matrices[t], combined(lambda own, y, t=t: own - lr(t, 0) * y, u, tracked))
        v = matrices[t] @ v
        tracked = mixed(matrices[t], tracked)
        before = g
        put(nodes.modules, [[own / v[i] for own in u[i]] for i in range(n)])
    return v


def dsgd_ceca(nodes, rounds, *, lr, one_port):
    """DSGD-CECA; held[i] and others[i] are the nodes that x and y of node i average.

    Their weights are those of an average over the union of disjoint sets, whoever is in them.
    """
    n = len(nodes.modules)
    y = [vector_of(module) for module in nodes.modules]
    for t in range(rounds):
        place = t % (n - 1).bit_length()
        if place == 0:
            held, others = [{i} for i in range(n)], [set() for _ in range(n)]
        x = [vector_of(module) for module in nodes.modules]
        is_odd = bin(n - 1)[2 + place] == "1"
        h = len(others[0])
        for i, module in enumerate(nodes.modules):
            put_vector(module, x[i] if is_odd else y[i])
            g = torch.cat([p.flatten() for p in nodes.gradient(i, t)])
            x[i], y[i] = x[i] - lr(t, 0) * g, y[i] - lr(t, 0) * g
        sent, known = (x, held) if is_odd else (y, others)
        new = []
        for i in range(n):
            j = i - h - is_odd
            if one_port:
                j = i + 2 * h + 1 if i % 2 else i - 2 * h - 1
            j %= n
            new.append(
                (union(x[i], held[i], sent[j], known[j]), union(y[i], others[i], sent[j], known[j]))
            )
        (x, held), (y, others) = (zip(*part, strict=True) for part in zip(*new, strict=True))
        x, y = list(x), list(y)
        for module, vector in zip(nodes.modules, x, strict=True):
            put_vector(module, vector)
    assert all(len(one) == n for one in held) or rounds % (n - 1).bit_length()


def teleportation(nodes, rounds, *, lr, active, degree, local_steps):
    """Return the messages per round; there are as many models as active nodes, and they move."""
    told, moving, before = [], [], []
    distances = [2**e for e in range(20) if 2**e < active][:degree]
    for t in range(rounds):
        order = stream(nodes.seed, "active", t).permutation(len(nodes.modules))[:active].tolist()
        here = [nodes.modules[i] for i in order]
        moving = moving or [vector_of(module) for module in here]
        for i, module, vector in zip(order, here, moving, strict=True):
            put_vector(module, vector.clone())
            for k in range(local_steps):
                g = nodes.gradient(i, t * local_steps + k)
                descend(module, still(module), g, lr(t, k), 0.0)
        trained = [vector_of(module) for module in here]
        for p, module in enumerate(here):
            heard = [trained[p], *(trained[(p + far) % active] for far in distances)]
            put_vector(module, sum(heard) / len(heard))
        moving = [vector_of(module) for module in here]
        moved = sum(i != j for i, j in zip(before, order, strict=False))
        told.append(active * len(distances) + moved)
        before = order
    return told


def union(a, members, b, more):
    """Return the union of two disjoint sets of nodes and its average; theirs are a and b."""
    assert not members & more
    size = len(members) + len(more)
    return (len(members) * a + len(more) * b) / size, members | more


def sab(nodes, pulls, pushes, rounds, *, lr):
    """S-AB: x <- A x - lr y, y <- B y + g - the gradient of the previous round."""
    n = len(nodes.modules)
    tracked = [still(m) for m in nodes.modules]
    before = [still(m) for m in nodes.modules]
    for t in range(rounds):
        g = [nodes.gradient(i, t) for i in range(n)]
        tracked = combined(lambda y, new, old: y + new - old, tracked, g, before)
        x = mixed(pulls[t], [copied(module) for module in nodes.modules])
        put(nodes.modules, combined(lambda own, y, t=t: own - lr(t, 0) * y, x, tracked))
        tracked, before = mixed(pushes[t], tracked), g


def changed(nodes, x, k, i):
    """Return the difference of a node's k-th parameter from the server's."""
    return list(nodes.modules[i].parameters())[k].data - list(x.parameters())[k].data


def shares(nodes, active):
    """Return each participant's fraction of the participants' examples."""
    total = sum(len(nodes.members[i]) for i in active)
    return {i: len(nodes.members[i]) / total for i in active}


def take(nodes, x):
    for module in nodes.modules:
        module.load_state_dict(x.state_dict())


def fedopt(nodes, members, rounds, *, lr, epochs, rule, server_lr, beta1=0.0, beta2=0.0, tau=1.0):
    """FedAdam, FedYogi and, with beta1 as momentum, FedAvgM. All modules start equal."""
    x = copy.deepcopy(nodes.modules[0])
    means = still(x)
    squares = [torch.full_like(p, tau**2) for p in x.parameters()]
    for t in range(rounds):
        for i in members(t):
            passes(nodes, i, t, "local", epochs=epochs, lr=lr(t, 0))
        weights = shares(nodes, members(t))
        for k, p in enumerate(x.parameters()):
            delta = sum(weight * changed(nodes, x, k, i) for i, weight in weights.items())
            if rule == "fedavgm":
                means[k] = beta1 * means[k] + delta
                p.data.add_(server_lr * means[k])
                continue
            means[k] = beta1 * means[k] + (1 - beta1) * delta
            if rule == "fedadam":
                squares[k] = beta2 * squares[k] + (1 - beta2) * delta**2
            else:
                squares[k] = squares[k] - (1 - beta2) * delta**2 * torch.sign(squares[k] - delta**2)
            p.data.add_(server_lr * means[k] / (torch.sqrt(squares[k]) + tau))
        take(nodes, x)


def diloco(
    nodes, members, rounds, *, lr, local_steps, outer_lr, outer_momentum, clip, decay=0.1, **how
):
    """DiLoCo with optimizers of torch, inside and outside. All modules start equal."""
    x = copy.deepcopy(nodes.modules[0])
    inner = adam_of(nodes, torch.optim.AdamW, weight_decay=decay, **{"beta2": 0.95} | how)
    outer = torch.optim.SGD(x.parameters(), lr=outer_lr, momentum=outer_momentum, nesterov=True)
    for t in range(rounds):
        for i in members(t):
            adam_steps(nodes, i, t, inner[i], lr=lr, steps=local_steps, clip=clip)
        for k, p in enumerate(x.parameters()):
            changes = [changed(nodes, x, k, i) for i in members(t)]
            p.grad = -sum(changes) / len(changes)
        outer.step()
        take(nodes, x)


def fednova(nodes, members, rounds, *, lr, counts, momentum=0.0):
    """FedNova; node i takes counts[i] steps.

    The number of gradients that they sum is found by steps along gradients of 1.
    """
    x = copy.deepcopy(nodes.modules[0])
    for t in range(rounds):
        moved = {}
        for i in members(t):
            velocity = still(x)
            speed = 0.0
            moved[i] = 0.0
            for step in range(t * counts[i], (t + 1) * counts[i]):
                g = gradient(nodes.modules[i], *batch_of(nodes, i, step, "local"))
                heavy_ball(nodes.modules[i], velocity, g, lr=lr, momentum=momentum)
                speed = momentum * speed + 1
                moved[i] += speed
        weights = shares(nodes, members(t))
        effective = sum(weights[i] * moved[i] for i in members(t))
        for k, p in enumerate(x.parameters()):
            p.data.add_(
                effective * sum(weights[i] / moved[i] * changed(nodes, x, k, i) for i in members(t))
            )
        take(nodes, x)


def feddyn(nodes, members, rounds, *, lr, alpha, epochs):
    """FedDyn, Algorithm 1 as listed, with SGD for the argmin; `slopes` are the stored gradients."""
    n = len(nodes.modules)
    x = copy.deepcopy(nodes.modules[0])
    slopes, h = [still(x) for _ in nodes.modules], still(x)
    for t in range(rounds):
        active = members(t)
        for i in active:
            steps = epochs * math.ceil(len(nodes.members[i]) / nodes.batch_size)
            for k in range(steps):
                g = gradient(nodes.modules[i], *batch_of(nodes, i, t * steps + k, "local"))
                for p, g_p, slope, x_p in zip(
                    nodes.modules[i].parameters(), g, slopes[i], x.parameters(), strict=True
                ):
                    p.data.sub_(lr(t, k) * (g_p - slope + alpha * (p.data - x_p.data)))
            slopes[i] = [
                slope - alpha * changed(nodes, x, k, i) for k, slope in enumerate(slopes[i])
            ]
        for k, p in enumerate(x.parameters()):
            moves = [changed(nodes, x, k, i) for i in active]
            h[k] = h[k] - alpha / n * sum(moves)
            p.data.add_(sum(moves) / len(active) - h[k] / alpha)
        take(nodes, x)


def shortened(v, limit):
    return v * min(1.0, limit / float(v.norm()))


def flat_gradient(module, inputs, labels):
    return torch.cat([g.flatten() for g in gradient(module, inputs, labels)])


def dp_dsgd(nodes, weights, rounds, *, lr, clip, noise, level, size, steps):
    """DP-D-SGD; return how often each (node, record) was used, at the record level."""
    n, used = len(nodes.modules), {}
    for t in range(rounds):
        for k in range(steps if level == "record" else 1):
            purpose = f"noise/{k}" if level == "record" else "noise"
            z = torch.from_numpy(
                stream(nodes.seed, purpose, t).standard_normal((n, nodes.flat().shape[1]))
            )
            for i, module in enumerate(nodes.modules):
                x = nodes.flat()[i]
                if level == "record":
                    phase = f"local/{k + 1}" if k else "local"
                    records = next_records(nodes.members[i], i, t * size, size, phase, nodes.seed)
                    found = [
                        flat_gradient(module, nodes.inputs[[r]], nodes.labels[[r]]) for r in records
                    ]
                    total = sum(shortened(g, clip) for g in found)
                    y = x - lr * (total + noise * clip * z[i]) / len(records)
                    used |= {(i, r): used.get((i, r), 0) + 1 for r in records}
                else:
                    for step in range(t * steps, (t + 1) * steps):
                        descend(module, still(module), nodes.gradient(i, step), lr, 0.0)
                    y = x + shortened(nodes.flat()[i] - x, clip) + noise * clip * z[i]
                put_vector(module, y)
        average(nodes.modules, weights)
    return used


def dp_fedavg(nodes, rounds, *, lr, clip, noise, participation, **local):
    """DP-FedAvg; return the number of participants of each round."""
    n, x, counts = len(nodes.modules), nodes.flat()[0], []
    for t in range(rounds):
        chances = stream(nodes.seed, "participation", t).random(n)
        active = [i for i in range(n) if chances[i] < participation]
        total = torch.zeros_like(x)
        for i in active:
            passes(nodes, i, t, "local", lr=lr, **local)
            total = total + shortened(nodes.flat()[i] - x, clip)
        z = torch.from_numpy(stream(nodes.seed, "noise", t).standard_normal(len(x)))
        x = x + (total + noise * clip * z) / (participation * n)
        for module in nodes.modules:
            put_vector(module, x.clone())
        counts.append(len(active))
    return counts


def next_records(members, node, start, size, phase, seed):
    """Return the next `size` records, but none of the next pass."""
    end = min(start + size, (start // len(members) + 1) * len(members))
    return [minibatch(members, node, place, 1, phase, seed)[0] for place in range(start, end)]


def compressed(compressor, vectors, rng):
    """Return the compressed vector of each node in order, by the compressor's name and settings."""
    how = compressor.settings
    d = len(vectors[0])
    made = []
    for x in vectors:
        if compressor.name == "no_compression":
            kept = x.tolist()
        elif compressor.name == "sign":
            mean = sum(abs(float(v)) for v in x) / d
            kept = [mean if v >= 0 else -mean for v in x.tolist()]
        elif compressor.name == "quantized":
            levels, norm = how["levels"], math.sqrt(sum(float(v) ** 2 for v in x))
            scale = norm / levels / (1 + min(d / levels**2, math.sqrt(d) / levels))
            rounded = [
                min(levels, math.floor(levels * abs(v) / (norm or 1) + rng.random()))
                for v in x.tolist()
            ]
            pairs = zip(rounded, x.tolist(), strict=True)
            kept = [math.copysign(scale * r, v) for r, v in pairs]
        else:
            keys = (
                -x.abs().numpy()
                if compressor.name == "top_k"
                else random_keys(0, [rng.integers(2**63)], range(d))[0]
            )
            count = math.ceil(round(how["share"] * d, 9))
            places = sorted(range(d), key=lambda k: keys[k])[:count]
            kept = [v if k in places else 0 for k, v in enumerate(x.tolist())]
        made.append(torch.tensor(kept, dtype=x.dtype))
    return made


def vector_of(module):
    return nn.utils.parameters_to_vector(module.parameters()).detach().clone()


def put_vector(module, vector):
    nn.utils.vector_to_parameters(vector, module.parameters())


def pull(weights, values, i):
    """Return node i's sum_j W[i, j] (values_j - values_i)."""
    return sum(weights[i, j] * (values[j] - values[i]) for j in range(len(values)))


def local_descent(nodes, t, *, lr, momentum, local_steps):
    """Take the local steps of round t at all nodes, and return the models as vectors."""
    for i, module in enumerate(nodes.modules):
        for k in range(local_steps):
            g = nodes.gradient(i, t * local_steps + k)
            descend(module, nodes.velocities[i], g, lr(t, k), momentum)
    return [vector_of(module) for module in nodes.modules]


def choco_sgd(nodes, weights, rounds, *, lr, compressor, gamma, momentum=0.0, local_steps=1):
    n = len(nodes.modules)
    hats = [torch.zeros_like(vector_of(module)) for module in nodes.modules]
    for t in range(rounds):
        halves = local_descent(nodes, t, lr=lr, momentum=momentum, local_steps=local_steps)
        differences = [half - hat for half, hat in zip(halves, hats, strict=True)]
        sent = compressed(compressor, differences, stream(nodes.seed, "compression", t))
        hats = [hat + q for hat, q in zip(hats, sent, strict=True)]
        for i in range(n):
            put_vector(nodes.modules[i], halves[i] + gamma * pull(weights, hats, i))


def mean_loss(nodes, module, i):
    """Return the mean loss of a module on a node's training examples."""
    own = list(nodes.members[i])
    with torch.no_grad():
        return float(functional.cross_entropy(module(nodes.inputs[own]), nodes.labels[own]))


def on_simplex(values):
    """Return the nearest distribution: values above a threshold, which bisection finds."""
    low, high = min(values) - 1, max(values)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.clip(values - middle, 0, None).sum() > 1 else (low, middle)
    return np.clip(values - low, 0, None)


def dr_dsgd(nodes, weights, rounds, *, lr, mu, local_steps=1):
    for t in range(rounds):
        for i, module in enumerate(nodes.modules):
            h = math.exp(mean_loss(nodes, module, i) / mu) / mu
            for k in range(local_steps):
                g = nodes.gradient(i, t * local_steps + k)
                descend(module, still(module), g, lr(t, k) * h, 0.0)
        average(nodes.modules, weights)


def ad_gda(nodes, weights, rounds, *, lr, dual_lr, mu, compressor, gamma):
    """AD-GDA; return every node's estimate of the worst distribution of nodes."""
    n = len(nodes.modules)
    hats = [torch.zeros_like(vector_of(module)) for module in nodes.modules]
    sizes = np.array([len(own) for own in nodes.members])
    p = [np.full(n, 1 / n) for _ in range(n)]
    for t in range(rounds):
        for i, module in enumerate(nodes.modules):
            loss, apart = mean_loss(nodes, module, i), p[i][i] - sizes[i] / sizes.sum()
            p[i][i] += dual_lr * (loss - mu * apart)
            p[i] = on_simplex(p[i])
            descend(module, still(module), nodes.gradient(i, t), lr(t, 0) * p[i][i], 0.0)
        models = [vector_of(nodes.modules[i]) + gamma * pull(weights, hats, i) for i in range(n)]
        left = [x - hat for x, hat in zip(models, hats, strict=True)]
        sent = compressed(compressor, left, stream(nodes.seed, "compression", t))
        hats = [hat + q for hat, q in zip(hats, sent, strict=True)]
        p = [sum(weights[i, j] * p[j] for j in range(n)) for i in range(n)]
        for module, x in zip(nodes.modules, models, strict=True):
            put_vector(module, x)
    return p


def drfa(nodes, members, rounds, *, lr, dual_lr, local_steps, drawn=True):
    """DRFA; return the worst distribution of nodes. The nodes members(t) evaluate in round t.

    As many are drawn to train by the distribution; if not `drawn`, those that evaluate train.
    """
    n = len(nodes.modules)
    p = np.array([len(own) for own in nodes.members], dtype=float)
    p /= p.sum()
    for t in range(rounds):
        asked, before = members(t), {}
        last = stream(nodes.seed, "snapshot", t).integers(1, local_steps + 1)
        active = list(asked)
        if drawn:
            noise = stream(nodes.seed, "drawn", t).gumbel(size=n)
            likely = sorted(np.flatnonzero(p), key=lambda i: -noise[i] - math.log(p[i]))
            others = sorted(np.flatnonzero(p == 0), key=lambda i: -noise[i])
            active = sorted(int(i) for i in [*likely, *others][: len(asked)])
        for i in active:
            for k in range(local_steps):
                g = nodes.gradient(i, t * local_steps + k)
                descend(nodes.modules[i], still(nodes.modules[i]), g, lr(t, k), 0.0)
                if k + 1 == last:
                    before[i] = vector_of(nodes.modules[i])
        serve_equally(nodes, active)
        z = copy.deepcopy(nodes.modules[0])
        put_vector(z, sum(before.values()) / len(active))
        for i in asked:
            p[i] += dual_lr * local_steps * n / len(asked) * mean_loss(nodes, z, i)
        p = on_simplex(p)
    return p


def deepsqueeze(nodes, weights, rounds, *, lr, compressor, gamma, momentum=0.0, local_steps=1):
    n = len(nodes.modules)
    errors = [torch.zeros_like(vector_of(module)) for module in nodes.modules]
    for t in range(rounds):
        halves = local_descent(nodes, t, lr=lr, momentum=momentum, local_steps=local_steps)
        wanted = [half + error for half, error in zip(halves, errors, strict=True)]
        sent = compressed(compressor, wanted, stream(nodes.seed, "compression", t))
        errors = [v - q for v, q in zip(wanted, sent, strict=True)]
        for i in range(n):
            put_vector(nodes.modules[i], halves[i] + gamma * pull(weights, sent, i))


def motef(nodes, weights, rounds, *, lr, compressor, gamma, momentum):
    """MoTEF: BEER that tracks running averages of gradients."""
    beer(nodes, weights, rounds, lr=lr, compressor=compressor, gamma=gamma, momentum=momentum)


def beer(nodes, weights, rounds, *, lr, compressor, gamma, momentum=0.0):
    """BEER: models X, trackers V, estimates H and G, as in the paper but for the first G, Q(V)."""
    n = len(nodes.modules)
    models = [vector_of(module) for module in nodes.modules]
    h = g = tracked = old = [torch.zeros_like(x) for x in models]
    for t in range(rounds):
        new = [torch.cat([p.flatten() for p in nodes.gradient(i, t)]) for i in range(n)]
        if t > 0:
            new = [momentum * old[i] + (1 - momentum) * new[i] for i in range(n)]
        tracked = [tracked[i] + gamma * pull(weights, g, i) + new[i] - old[i] for i in range(n)]
        old = new
        left = [v - u for v, u in zip(tracked, g, strict=True)]
        changes = compressed(compressor, left, stream(nodes.seed, "compression/tracked", t))
        g = [u + q for u, q in zip(g, changes, strict=True)]
        models = [models[i] + gamma * pull(weights, h, i) - lr(t, 0) * tracked[i] for i in range(n)]
        left = [x - u for x, u in zip(models, h, strict=True)]
        changes = compressed(compressor, left, stream(nodes.seed, "compression/models", t))
        h = [u + q for u, q in zip(h, changes, strict=True)]
        for module, x in zip(nodes.modules, models, strict=True):
            put_vector(module, x)
