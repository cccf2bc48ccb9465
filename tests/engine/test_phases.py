"""What a phase of one's own may ask of the round, and what it must declare for it."""

import numpy as np
import pytest
import torch
from torch.nn import functional

import topofl
from tests import naive, problems
from tests.engine.train.test_divergence import clients_with_extremes
from topofl import algorithms, mixing, topologies
from topofl.algorithms import Phase
from topofl.engine import round_training
from topofl.engine.population import initial_population

N, BATCH, SEED = 6, 4, 3
UNIFORM = mixing.uniform(topologies.ring(N))


def stateless(models):
    return {}


def phase(use):
    """Return the phase that uses the round by ``use(models, round)``."""

    def apply(models, state, round):
        use(models, round)
        return state

    return Phase(stateless, apply)


def run(tried, rounds=2, **settings):
    settings = {
        "clients": problems.equal_clients(N),
        "model": problems.linear(),
        "executor": "looped",
    } | settings
    algorithm = algorithms.chain("own", local=algorithms.sgd(0.1, batch_size=BATCH), tried=tried)
    return topofl.run(algorithm, rounds=rounds, seed=SEED, **problems.options(every=1, **settings))


MIXED = algorithms.Training(algorithms.descend(lr=0.1), BATCH, gradient=mixing.uniform)
OF_A_GRAPH = {
    "weights": lambda models, round: round.mix(round.weights, models.flat),
    "push_weights": lambda models, round: round.mix(round.push_weights, models.flat),
    "topology": lambda models, round: round.mix(mixing.uniform(round.topology), models.flat),
    "gradient": lambda models, round: round.train(models, MIXED, {}),
}


@pytest.mark.parametrize("door", OF_A_GRAPH)
def test_calls_that_need_a_topology_are_refused_without_one_before_training(door, monkeypatch):
    monkeypatch.setattr(round_training, "local_steps", None)
    with pytest.raises(TypeError, match="`topology` must be given, since own exchanges models"):
        run(phase(OF_A_GRAPH[door]))
    with pytest.raises(TypeError, match="`topology` must be given, since own exchanges models"):
        topofl.estimate(
            algorithms.chain("own", tried=phase(OF_A_GRAPH[door])), model=problems.linear(),
            clients=problems.equal_clients(N),
        )  # fmt: skip


@pytest.mark.parametrize("door", OF_A_GRAPH)
def test_calls_over_a_topology_are_counted_and_estimated(door):
    graph = topologies.ring(N) if door != "push_weights" else topologies.random_out(N, 2, seed=0)
    history = run(phase(OF_A_GRAPH[door]), topology=graph)
    assert (history["messages"] > 0).all()
    algorithm = algorithms.chain("own", tried=phase(OF_A_GRAPH[door]))
    need = topofl.estimate(
        algorithm, model=problems.linear(), clients=problems.equal_clients(N), topology=graph
    )
    assert need.messages == history["messages"][0]
    assert need.bytes == history["bytes"][0]


def test_custom_matrices_need_no_topology():
    history = run(phase(lambda models, round: round.mix(UNIFORM, models.flat)))
    assert history["messages"].tolist() == [2 * N, 2 * N]


def test_before_exchange_is_right_before_the_first_phase_that_mixes():
    """The spread of models is gone after the exchange, and there before it."""
    everybody = mixing.uniform(topologies.fully_connected(N))
    history = run(
        phase(lambda models, round: round.mix(everybody, models.flat)), before_exchange=True
    )
    before, after = history["accuracy_before_exchange"][-1], history["accuracy"][-1]
    assert np.ptp(before) > 0
    assert np.ptp(after) == 0


def looks_at_numbers(models, round):
    if float(models.flat.sum()) != 0:
        round.mix(UNIFORM, models.flat)


def branches_on_numbers(models, round):
    if models.flat.norm() > 1:
        round.mix(UNIFORM, models.flat)


def goes_through_numpy(models, round):
    models.flat.copy_(torch.from_numpy(models.flat.numpy() * 0.5))


@pytest.mark.parametrize("use", [looks_at_numbers, branches_on_numbers, goes_through_numpy])
def test_errors_name_phases_that_fail_on_meta_tensors(use):
    with pytest.raises(
        ValueError, match=r"the phase 'tried' must work on models without numbers.*flat\.is_meta"
    ):
        run(phase(use))

    def most(models, round):
        round.mix(UNIFORM, models.flat) if models.flat.is_meta else use(models, round)

    assert run(phase(most)).n_rounds == 2


@pytest.mark.parametrize("door", OF_A_GRAPH)
@pytest.mark.parametrize("topology", [None, topologies.ring(N)], ids=["no topology", "ring"])
def test_calls_first_made_in_later_rounds_are_refused(door, topology):
    """A graph not asked for, or an exchange of which nothing was known, would go unnoticed."""
    later = phase(lambda models, round: OF_A_GRAPH[door](models, round) if round.t == 4 else None)
    done = []
    with pytest.raises(
        ValueError,
        match=r"the phase 'tried' must use round\..* in the first rounds too.* in round 5",
    ):
        run(
            later,
            rounds=6,
            topology=topology,
            callbacks=[problems.each_round(lambda t, models: done.append(t))],
        )
    assert done == [1, 2, 3, 4]


def test_memory_estimates_include_late_states_and_early_scratch():
    def grows(models, state, round):
        copies = [models.flat.clone() for _ in range(5 if round.t == 0 else 1)]
        return state | {"kept": copies[0]}

    tried = phase(lambda models, round: None)._replace(apply=grows)
    need = topofl.estimate(
        algorithms.chain("own", tried=tried),
        model=problems.linear(),
        clients=problems.equal_clients(N),
    )
    assert need.state == need.parameters
    assert need.phases == 5 * need.parameters


def test_phases_note_numbers_of_rounds(tmp_path):
    def noting(models, round):
        round.note("first", models.flat[0, 0])
        models.flat.add_(1)
        round.note("length", models.flat.norm())
        round.note("third", round.t / 3)
        if round.t % 2 or models.flat.is_meta:
            round.note("odd", round.t)

    told = []

    def look(event):
        told.append(event.values["length"]) if event.kind == "round" else None

    lengths, firsts = [], []

    def seen(t, models):
        lengths.append(float(models.flat.norm()))
        firsts.append(float(models.flat[0, 0]))

    callbacks = [look, problems.each_round(seen)]
    whole = run(phase(noting), rounds=5, callbacks=callbacks)
    assert whole["length"].tolist() == told == lengths
    np.testing.assert_allclose(whole["first"], np.array(firsts) - 1, atol=1e-5)
    np.testing.assert_array_equal(whole["third"], np.arange(5) / 3)
    np.testing.assert_array_equal(whole["odd"], [np.nan, 1, np.nan, 3, np.nan])
    whole.save(tmp_path / "history")
    np.testing.assert_array_equal(topofl.History.load(tmp_path / "history")["odd"], whole["odd"])
    run(phase(noting), rounds=3, saving=tmp_path / "run")
    resumed = run(phase(noting), rounds=5, saving=topofl.Saving(tmp_path / "run", resume=True))
    np.testing.assert_array_equal(resumed["odd"], whole["odd"])


@pytest.mark.parametrize("name", ["bytes", "two words", 3])
def test_names_of_noted_numbers_must_be_new_identifiers(name):
    with pytest.raises(
        ValueError, match=r"`name` must be an identifier that is not a column of histories.*'tried'"
    ):
        run(phase(lambda models, round: round.note(name, 1.0)))
    with pytest.raises(ValueError, match="got 'accuracy'; rename it"):
        run(phase(lambda models, round: round.note("accuracy", 1.0)))


def test_names_first_noted_in_later_rounds_are_refused():
    later = phase(lambda models, round: round.note("late", 1.0) if round.t == 4 else None)
    with pytest.raises(
        ValueError, match=r"the phase 'tried' must note 'late' in the first rounds too"
    ):
        run(later, rounds=6)


def test_the_start_must_be_read_in_init():
    with pytest.raises(ValueError, match=r"`models\.start` must be read in `init`"):
        run(phase(lambda models, round: models.flat.copy_(models.start.expand_as(models.flat))))


def test_each_call_of_train_draws_other_minibatches():
    how = algorithms.Training(algorithms.descend(lr=0.1), BATCH)

    def twice(models, round):
        round.train(models, how, {})
        round.train(models, how, {})

    def flat(apply):
        kept = []
        algorithm = algorithms.chain("own", tried=phase(apply))
        topofl.run(
            algorithm,
            model=problems.linear(),
            clients=problems.equal_clients(N),
            rounds=1,
            seed=SEED,
            callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
        )
        return kept[0]

    same = algorithms.chain("same", tried=algorithms.sgd(0.1, batch_size=BATCH, steps=2))
    kept = []
    topofl.run(
        same, model=problems.linear(), clients=problems.equal_clients(N), rounds=1, seed=SEED,
        callbacks=[problems.each_round(lambda t, models: kept.append(models.flat.clone()))],
    )  # fmt: skip
    first = flat(lambda models, round: round.train(models, how, {}))
    assert not torch.equal(flat(twice), first)
    assert not torch.equal(flat(twice), kept[0])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"init": lambda models: None},
            r"`init` of the phase 'tried' must return its state, a dict .* got NoneType",
        ),
        (
            {"apply": lambda models, state, round: None},
            r"`apply` of the phase 'tried' must return its state",
        ),
        (
            {"init": lambda models: {"a": 3}},
            r"`init` of the phase 'tried' must return tensors by name, got int as 'a'",
        ),
    ],
    ids=["init", "apply", "number"],
)
def test_states_must_be_dicts_of_tensors(changed, message):
    with pytest.raises(TypeError, match=message):
        run(phase(lambda models, round: None)._replace(**changed))


def test_fine_tuning_must_not_exchange():
    mixes = phase(lambda models, round: round.mix(UNIFORM, models.flat))
    with pytest.raises(
        ValueError, match=r"`fine_tune` must be a phase of each node alone .* got one that uses mix"
    ):
        run(algorithms.sgd(0.1, batch_size=BATCH), fine_tune=mixes, topology=topologies.ring(N))


def test_memory_depends_on_calls_not_on_settings():
    """Settings change nothing; copies and gradients that the phase asks for count."""

    def two_copies(models, round):
        first, second = models.flat.clone(), round.gradients(models, BATCH, "mine")
        models.flat.copy_(first - second)

    def need(tried):
        clients, model = problems.equal_clients(N), problems.linear()
        return topofl.estimate(algorithms.chain("own", tried=tried), model=model, clients=clients)

    silent, telling = (
        need(phase(two_copies)),
        need(phase(two_copies)._replace(settings={"batch_size": 4000})),
    )
    assert silent == telling
    d = silent.d
    assert silent.phases == 2 * N * d * 4  # a copy and a difference
    assert silent.gradients == need(phase(lambda models, round: None)).gradients + N * d * 4


def own_descent(keys, lr=0.1):
    """Return an algorithm that takes a gradient step for each key, and the gradients it got."""
    seen = []

    def use(models, round):
        for key in keys:
            gradients = round.gradients(models, BATCH, key)
            if not models.flat.is_meta:
                seen.append(gradients.clone())
            models.flat.sub_(gradients, alpha=lr)

    return algorithms.chain("own", step=phase(use)), seen


def descended(keys, rounds=3, clients=None, **settings):
    algorithm, seen = own_descent(keys)
    history = topofl.run(
        algorithm,
        model=problems.linear(),
        clients=clients or problems.ragged_clients(N),
        rounds=rounds,
        seed=SEED,
        **problems.options(dtype=torch.float64, **settings),
    )
    return history, seen


SETTINGS = [{"executor": "looped"}, {"executor": "batched", "chunk": 2}]


@pytest.mark.parametrize("settings", SETTINGS, ids=["looped", "batched"])
def test_losses_of_gradient_evaluations_are_recorded(settings):
    """A loop over nodes finds the same losses and gradients, on minibatches of the key."""
    clients = problems.ragged_clients(N)
    history, seen = descended(["first", "second"], clients=clients, **settings)
    nodes = naive.Nodes(
        [problems.linear().double() for _ in range(N)],
        clients.dataset.inputs.double(),
        clients.dataset.labels,
        clients.train,
        BATCH,
        SEED,
    )
    start = initial_population(
        problems.linear(),
        N,
        init="common",
        seed=SEED,
        device=torch.device("cpu"),
        dtype=torch.float64,
    )
    wanted, steps = np.zeros((3, N)), []
    for i, module in enumerate(nodes.modules):
        torch.nn.utils.vector_to_parameters(start.flat[i].clone(), module.parameters())
        for t in range(3):
            for key in ("first", "second"):
                places = naive.minibatch(clients.train[i], i, t, BATCH, f"step/{key}", SEED)
                batch = torch.as_tensor(places)
                loss = functional.cross_entropy(module(nodes.inputs[batch]), nodes.labels[batch])
                gradients = torch.autograd.grad(loss, list(module.parameters()))
                steps.append((i, torch.cat([g.flatten() for g in gradients])))
                wanted[t, i] += loss.item() / 2
                with torch.no_grad():
                    for p, g in zip(module.parameters(), gradients, strict=True):
                        p.sub_(g, alpha=0.1)
    np.testing.assert_allclose(history.node_loss, wanted, rtol=0, atol=1e-12)
    np.testing.assert_allclose(history["train_loss"], wanted.mean(1), rtol=0, atol=1e-12)
    for i in range(N):
        mine = torch.stack([gradients[i] for gradients in seen])
        torch.testing.assert_close(
            mine, torch.stack([g for j, g in steps if j == i]), rtol=0, atol=1e-12
        )


def test_each_key_draws_other_minibatches():
    def look(key):
        found = []

        def use(models, round):
            gradients = [round.gradients(models, BATCH, one).clone() for one in key]
            found.extend([] if models.flat.is_meta else gradients)

        topofl.run(
            algorithms.chain("own", step=phase(use)), model=problems.linear(),
            clients=problems.equal_clients(N), rounds=1, seed=SEED,
        )  # fmt: skip
        return found

    a, b, again, phases_own = look(["a", "b", "a", ""])
    assert torch.equal(a, again)
    assert not torch.equal(a, b)
    assert not torch.equal(a, phases_own)
    assert torch.equal(look(["b"])[0], b), "a key's minibatches do not depend on other calls"


def test_losses_of_local_steps_take_precedence():
    """As of Dis-PFL, which asks for gradients after it has trained."""
    looking = phase(lambda models, round: round.gradients(models, BATCH, "look"))
    local = algorithms.sgd(0.1, batch_size=BATCH)
    settings = {
        "model": problems.linear(),
        "clients": problems.equal_clients(N),
        "rounds": 3,
        "seed": SEED,
    }
    plain = topofl.run(algorithms.chain("plain", local=local), **problems.options(**settings))
    for order in ({"local": local, "look": looking}, {"look": looking, "local": local}):
        history = topofl.run(algorithms.chain("looking", **order), **problems.options(**settings))
        np.testing.assert_array_equal(history.node_loss, plain.node_loss)


@pytest.mark.parametrize("key", [None, 0])
def test_keys_must_be_text(key):
    with pytest.raises(TypeError, match="`key` must be text"):
        descended([key])


def test_divergence_in_custom_phases_is_detected():
    algorithm, _ = own_descent(["step"], lr=1e38)
    settings = {
        "model": problems.linear(),
        "clients": problems.equal_clients(N),
        "rounds": 4,
        "seed": SEED,
    }
    with pytest.raises(
        topofl.DivergenceError, match=r"the loss of node \d is (nan|inf) in round 2"
    ):
        topofl.run(algorithm, **problems.options(every=10, **settings))
    history = topofl.run(
        algorithm, **problems.options(every=10, on_divergence="record", **settings)
    )
    assert {found["round"] for found in history.meta["diverged"]} == {2}


def test_gradients_of_two_keys_do_not_share_memory():
    apart = {}

    def use(models, round):
        first = round.gradients(models, BATCH, "first")
        before = first.clone()
        second = round.gradients(models, BATCH, "second")
        if not models.flat.is_meta:
            apart["kept"], apart["other"] = torch.equal(first, before), torch.equal(first, second)

    method = algorithms.chain("own", step=phase(use))
    topofl.run(
        method, model=problems.linear(), clients=problems.equal_clients(N), rounds=1, seed=SEED
    )
    assert apart == {"kept": True, "other": False}


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"init": None}, TypeError, "`init` of the phase 'step' must be a function, got None"),
        ({"apply": 3}, TypeError, "`apply` of the phase 'step' must be a function, got 3"),
        (
            {"settings": None},
            TypeError,
            "`settings` of the phase 'step' must be a dictionary, got None",
        ),
    ],
)
def test_invalid_phases_are_refused(changed, error, message):
    with pytest.raises(error, match=message):
        algorithms.chain("own", step=phase(lambda models, round: None)._replace(**changed))


@pytest.mark.parametrize("door", ["mix", "send"])
def test_mixing_matrices_must_not_be_arrays(door):
    def apply(models, state, round):
        getattr(round, door)(np.eye(round.n), models.flat if door == "mix" else 8)
        return state

    clients = problems.equal_clients()
    algorithm = algorithms.chain("own", exchange=algorithms.Phase(lambda models: {}, apply, {}))
    with pytest.raises(
        TypeError,
        match=rf"`weights` of round.{door} must be a MixingMatrix .*, got ndarray; .*from_we",
    ):
        topofl.run(
            algorithm,
            model=problems.linear(),
            clients=clients,
            topology=problems.cliques(clients),
            rounds=1,
            seed=0,
        )


def test_gradient_evaluations_count_as_steps():
    """DSGT takes one gradient per node and round; local steps and gradients add up."""
    history = topofl.run(
        algorithms.dsgt(0.1), model=problems.linear(), clients=problems.equal_clients(N),
        topology=topologies.ring(N), rounds=3, seed=SEED,
    )  # fmt: skip
    assert history["steps"].tolist() == [N] * 3
    looking = phase(lambda models, round: round.gradients(models, BATCH, "look"))
    assert run(looking, rounds=3)["steps"].tolist() == [2 * N] * 3


def test_frozen_nodes_take_no_steps():
    clients = clients_with_extremes()
    history = topofl.run(
        algorithms.dsgd(0.1, batch_size=BATCH),
        model=problems.linear(),
        clients=clients,
        topology=topologies.ring(N),
        rounds=3,
        seed=SEED,
        **problems.options(on_divergence="freeze"),
    )
    assert [found["round"] for found in history.meta["diverged"]] == [1]
    assert history["steps"].tolist() == [N - 1] * 3
