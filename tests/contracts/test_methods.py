"""What holds for every algorithm of the table; a missing row fails."""

import ast
import doctest
import inspect
import sys
import warnings
from collections import Counter

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.algorithms.harness import EXECUTORS, N, engine, watched
from tests.engine.train.test_divergence import BAD, too_large, with_inputs
from tests.rows.methods import ALGORITHMS, ARGUMENTS, SAME, TWINS
from topofl import algorithms, topologies

BY_NAME = pytest.mark.parametrize("name", ALGORITHMS)
PERSONAL = [name for name, arguments in ARGUMENTS.items() if {"head", "local"} & arguments.keys()]


def build(name, **changes):
    return getattr(algorithms, name)(**ARGUMENTS[name] | changes)


def model_of(name):
    return problems.convolutional() if name in PERSONAL else problems.linear()


def clients_of(name):
    return problems.validated_clients() if ALGORITHMS[name].validated else problems.equal_clients()


def run(name, algorithm=None, **settings):
    clients = settings.pop("clients", None) or clients_of(name)
    usual = {"rounds": 25, "topology": problems.cliques(clients), "seed": 0, "executor": "looped"}
    settings = problems.options(**usual | settings)
    return topofl.run(algorithm or build(name), model=model_of(name), clients=clients, **settings)


def test_every_algorithm_has_a_row():
    assert set(ALGORITHMS) == set(algorithms.__all__)


def test_every_algorithm_is_compared_with_a_naive_loop():
    elsewhere = {"random_collaboration"}  # in tests/algorithms/test_peers.py
    assert {twin.method for twin in TWINS} | elsewhere == set(algorithms.__all__)


def named(one):
    """Return the name of a twin, of its clients, or of some executors."""
    if isinstance(one, list):
        return " ".join(f"{how['executor']} {how.get('chunk', '')}".strip() for how in one)
    return getattr(one, "__name__", str(one))


def with_twins():
    """Return each twin with its clients and executors.

    `make test` takes every second twin of a method, from the first, with one kind of clients and
    one executor, by turns.
    """
    before = Counter()
    for i, twin in enumerate(TWINS):
        (one, *others), slow = np.roll(EXECUTORS, i), pytest.mark.slow
        before[twin.method] += 1
        for k, make in enumerate(twin.clients):
            if (i + k) % len(twin.clients) or before[twin.method] % 2 == 0:
                yield pytest.param(twin, make, EXECUTORS, marks=slow)
            else:
                yield twin, make, [one]
                yield pytest.param(twin, make, others, marks=slow)


@pytest.mark.parametrize(("twin", "make", "executors"), [*with_twins()], ids=named)
def test_it_ends_where_its_naive_loop_does(twin, make, executors):
    """The loop is computed once, and compared with all executors."""
    clients = make()
    start, wanted, told = twin.naively(clients)
    for settings in executors:
        seen = []
        problem = watched(twin.built(), seen), twin.model(), clients, twin.graph_of(clients)
        how = {"rounds": twin.rounds, "init": twin.init, "every": twin.rounds} | settings
        history, models = engine(*problem, **how)
        torch.testing.assert_close(models.flat, wanted, rtol=0, atol=twin.within, msg=str(settings))
        assert not torch.allclose(wanted, start, atol=1e-4), "nothing was trained"
        twin.also(told, history, models, seen[-1] if seen else {})


FIRST = {same.one: same for same in reversed(SAME)}
QUICK = list(FIRST.values())[::2]
CASES = [pytest.param(same, marks=() if same in QUICK else pytest.mark.slow) for same in SAME]
"""Special cases, of which `make test` takes the first of every second method."""


@pytest.mark.parametrize("same", CASES, ids=str)
def test_special_cases_are_other_methods(same):
    clients, model = same.clients(), same.model()
    (one, mine), (other, theirs) = (
        engine(algorithm, model, clients, graph, **{"executor": "looped"} | same.settings)
        for algorithm, graph in same.sides
    )
    wanted = theirs.flat.expand_as(mine.flat)
    torch.testing.assert_close(mine.flat, wanted, rtol=0, atol=same.within)
    if same.bytes:
        np.testing.assert_array_equal(one["bytes"], other["bytes"])


OTHER_AVERAGES = {
    "sab": "pushes its gradients, so that the mean of all losses is minimized",
    "coordinate_median": "takes no weighted mean",
    "bulyan": "takes no weighted mean",
    "geometric_median": "takes a mean weighted by distances, and does not read the weights",
    "krum": "takes no weighted mean",
    "trimmed_mean": "takes no weighted mean, and does not read the weights",
    "dispfl": "averages each parameter over other nodes, whatever the weights",
    "divshare": "nodes send to random peers, whatever the weights",
    "dpfl": "nodes choose their peers",
    "pfeddst": "nodes choose their peers",
    "random_collaboration": "nodes choose their peers",
}
"""Methods of which a warning of unequal shares would be untrue, though models do not keep their
mean on a directed graph."""


def mean_model(name, graph):
    """Return the mean of the models after rounds without training, and whether shares are named."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        settings = {"topology": graph, "rounds": 20, "init": "independent", "executor": "auto"}
        history = run(name, build(name, lr=1e-30), **settings)
    warned = [one for one in told if "a share of" in str(one.message)]
    return history.models.flat.mean(0), len(warned)


@BY_NAME
@pytest.mark.slow
def test_methods_that_average_by_rows_of_weights_warn_of_unequal_shares_and_declare_it(name):
    """If only rows of W sum to 1, averaging moves the mean of the models; with columns it is kept.

    A new method that moves it must warn, or be listed with a reason.
    """
    edges = {(i, (i + 1) % 6) for i in range(6)} | {(0, j) for j in range(1, 6)}
    graph = topofl.from_edges(sorted(edges), 6, directed=True)
    declared = algorithms.equal_shares in build(name).needs
    assert declared == ("metrics.perron_vector" in inspect.getdoc(getattr(algorithms, name)))
    try:
        directed, warned = mean_model(name, graph)
    except topofl.TopologyError:
        assert not declared
        return
    except ValueError as error:
        if "a common start" not in str(error):
            raise
        run(name, topology=None, rounds=1)  # no rows: models are averaged by a server
        return
    undirected, _ = mean_model(name, topologies.ring(6))
    moved = float((directed - undirected).abs().max()) > 0.01
    assert moved == (declared or name in OTHER_AVERAGES)
    assert warned == declared


@BY_NAME
def test_required_arguments_are_enough_and_documented_by_an_example(name):
    """The suite runs the examples as doctests."""
    function, row = getattr(algorithms, name), ALGORITHMS[name]
    function(row.lr, **row.required)
    assert doctest.DocTestParser().get_examples(inspect.getdoc(function))


def statements(source):
    """Return how many statements a module has, without imports and docstrings."""
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    texts = [x for x in found if isinstance(x, ast.Expr) and isinstance(x.value, ast.Constant)]
    return (
        len(found) - len(texts) - sum(isinstance(one, ast.Import | ast.ImportFrom) for one in found)
    )


@BY_NAME
def test_a_method_is_short(name):
    """At most 60 statements: a chain of terms and phases that other methods may use too."""
    text = '"""Text."""\nimport ast\ndef f(a):\n    """More."""\n    return (a,\nb)\nc = 1; d = 2'
    assert statements(text) == 4
    module = sys.modules[getattr(algorithms, name).__module__]
    assert name in module.__all__
    assert statements(inspect.getsource(module)) <= 60 * len(module.__all__)


@problems.by_turns(6, 0, name=ALGORITHMS)
def test_loss_falls_and_seed_decides(name):
    history, again = run(name, every=5), run(name, every=5, rounds=5)
    assert history["train_loss"][-1] < 0.5 * history["train_loss"][0]
    for column in ("loss", "train_loss"):
        np.testing.assert_array_equal(history[column][: len(again[column])], again[column])
    assert list(again["round"]) == [0, 5]


@problems.by_turns(3, 1, name=ALGORITHMS)
def test_learning_rates_may_be_schedules(name):
    """A constant one gives the models of a number, and one that falls gives others."""
    rates = (0.1, algorithms.constant(0.1), "exponential(0.1, 0.5)")
    methods = [build(name, lr=lr) for lr in rates]
    number, constant, falling = (run(name, one, rounds=2).models.flat for one in methods)
    assert torch.equal(number, constant)
    assert not torch.equal(number, falling)


OTHER = {"discount": "hinge_discount(1, 1)", "concurrency": 2}
OTHER |= {
    "clock": {"compute": 2.0},
    "compressor": "sign",
    "head": "0",
    "local": "1",
    "mode": "push",
}
OTHER |= {"header_sign": "literal", "level": "node", "loss_refresh": "none", "regrow": "random"}
OTHER |= dict.fromkeys(("budget", "epochs", "fine_tune_epochs", "first_epochs", "k", "steps"), 3)
OTHER |= {"groups": [range(N)], "passive": [1], "batch_size": 5, "degree": 1, "local_steps": 5}
"""Other values of arguments that are no fractions and no truth values."""


def different(value):
    """Return another number or truth value."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else (value or 0.5) / 2


BESIDE = {"tau": {"delta": None}, "delta": {"tau": None}, "steps": {"epochs": None}}
BESIDE |= {"reset_momentum": {"momentum": 0.9}, "count_self": {"budget": 2}}
"""What must be given for an argument to be accepted, or to matter."""


@BY_NAME
def test_every_argument_is_a_setting(name):
    """Histories and checkpoints hold them, so that no run is resumed with another value."""
    parameters = inspect.signature(getattr(algorithms, name)).parameters
    for argument, parameter in parameters.items():
        beside = {one: x for one, x in BESIDE.get(argument, {}).items() if one in parameters}
        value = (ARGUMENTS[name] | beside).get(argument, parameter.default)
        value = OTHER.get(argument) or different(value)
        changed = build(name, **beside, **{argument: value})
        plain = {one: value for one, value in beside.items() if value is not None}
        assert changed.settings != build(name, **plain).settings, argument


D, BODY, WHOLE = 36 * 3 + 3, 48, 159
"""Parameters of the linear model, and of the body and all of the convolutional one."""

THREE = {"participation": 3, "epochs": 1}
TOP = algorithms.top_k(0.1)

SENT = [
    *(
        (build(name), 12, 12 * D)
        for name in ("dsgd", "extra", "d2", "edm", "led", "dinno", "qg_dsgdm", "dadam", "noloco")
    ),
    *((build(name), 12, 12 * D) for name in ("ad_psgd", "dp_dsgd", "dfedsam", "coordinate_median")),
    *((build(name), 12, 24 * D) for name in ("dsgt", "local_gt", "sab")),
    (build("momentum_tracking"), 12, 24 * D),
    (build("dadam", track=True), 12, 24 * D),
    *((build(name), 24, 24 * D) for name in ("demuon", "gt_hsgd")),
    (build("proxskip", probability=1.0), 12, 12 * D),
    (build("dfedsam", gossip_steps=4), 48, 48 * D),
    (build("push_diging"), 12, 12 * (2 * D + 1)),
    (build("osgp"), 12, 12 * (D + 1)),
    (build("relay_sgd"), 10, 10 * (D + 1)),
    *((build("proxyfl", average=average), 12, 12 * WHOLE) for average in (False, True)),
    (build("dsgd_ceca"), 6, 6 * D),
    (build("dsgd_ceca", one_port=True), 6, 6 * D),
    (build("local_only"), 0, 0),
    *((build(name, **THREE), 6, 6 * D) for name in ("fedavg", "fedadam", "fedyogi", "fedavgm")),
    *((build(name, **THREE), 6, 6 * D) for name in ("feddyn", "fedprox", "ditto", "apfl")),
    (build("dp_fedavg", epochs=1), 12, 12 * D),
    *((build(name, epochs=1), 12, 12 * D) for name in ("fedasync", "fedbuff")),
    (build("fedbuff", epochs=1, clock={"compute": [1, 1, 1, 1, 1, 9]}), 12, 12 * D),
    (build("pfedme", **THREE), 6, 6 * D),
    (build("pfedme", server=False), 12, 12 * D),
    (build("diloco", participation=3), 6, 6 * D),
    (build("hierfavg", epochs=1, participation=0.5), 8, 8 * D),  # 2 of 3, 1 of 1 and 1 of 2
    (build("drfa", participation=3), 12, 9 * D + 3 * (D + 1)),
    (build("dr_dsgd"), 12, 12 * D),
    (build("ad_gda"), 12, 12 * (D + N)),
    (build("scaffold", **THREE), 6, 12 * D),
    (build("fednova", **THREE), 6, 3 * (2 * D + 1)),
    (build("fedper", **THREE), 6, 6 * BODY),
    *((build(name, **THREE), 6, 6 * WHOLE) for name in ("moon", "fedala", "feddecorr")),
    (build("fedala", server=False), 12, 12 * WHOLE),
    (build("feddecorr", server=False), 12, 12 * WHOLE),
    (build("moon", server=False), 12, 12 * WHOLE),
    (build("dfedavgm_p"), 12, 12 * BODY),
    (build("divshare", degree=1), 60, 6 * D),
    (build("facade"), 12, 12 * (WHOLE + 1)),
    (build("ifca", k=4, participation=3), 6, 3 * 5 * D),
    (build("dfedpgp", mode="push"), 12, 12 * (BODY + 1)),
    (build("choco_sgd", compressor=TOP), 12, 12 * (12 + 11 / 4)),  # 12 places of 7 bits
    (build("choco_sgd", compressor=algorithms.random_k(0.1)), 12, 12 * (12 + 2)),
    (build("deepsqueeze", compressor=algorithms.sign()), 12, 12 * (1 + 14 / 4)),
    (build("beer", compressor=algorithms.quantized(7)), 12, 24 * (1 + 14)),  # 15 values: 4 bits
    (build("beer", compressor=algorithms.no_compression()), 12, 24 * D),
    (build("motef", compressor=algorithms.quantized(7)), 12, 24 * (1 + 14)),
]
"""Messages per round on a ring of 6 nodes, and numbers of 4 bytes that they hold."""


@pytest.mark.parametrize(("algorithm", "messages", "numbers"), SENT, ids=lambda one: str(one)[:30])
def test_messages_hold_models_and_what_else_is_sent(algorithm, messages, numbers):
    history = run(algorithm.name, algorithm, rounds=2, topology=topologies.ring(N))
    assert history["messages"].tolist() == [messages] * 2
    assert history["bytes"].tolist() == [4 * numbers] * 2


@pytest.mark.parametrize("name", [name for name, row in ALGORITHMS.items() if row.common_start])
def test_different_initial_models_are_refused(name):
    with pytest.raises(ValueError, match="`init` must be 'common'"):
        run(name, init="independent", rounds=1)


@problems.by_turns(3, 2, name=ALGORITHMS)
def test_executors_agree_on_what_diverges(name):
    """One node's first step overflows."""
    clients = clients_of(name)
    clients = with_inputs(clients, clients.train[BAD], too_large)
    for policy in ("freeze", "record"):
        how = {"clients": clients, "on_divergence": policy, "rounds": 3}
        one = run(name, **how)
        other = run(name, executor="batched", chunk=2, **how)
        assert one.meta["diverged"] == other.meta["diverged"] != []
        if policy == "freeze":
            assert torch.isfinite(one.models.flat).all()
            torch.testing.assert_close(one.models.flat, other.models.flat, rtol=0, atol=1e-5)
