"""Calls of user-defined phases: the dry run finds what they need, and invalid ones are refused."""

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from tests.engine.phases import BATCH, N, phase, run
from topofl import algorithms, mixing, topologies
from topofl.engine import training

UNIFORM = mixing.uniform(topologies.ring(N))


MIXED = algorithms.Training(algorithms.descend(lr=0.1), BATCH, gradient=mixing.uniform)


OF_A_GRAPH = {
    "weights": lambda models, round: round.mix(round.weights, models.flat),
    "push_weights": lambda models, round: round.mix(round.push_weights, models.flat),
    "topology": lambda models, round: round.mix(mixing.uniform(round.topology), models.flat),
    "gradient": lambda models, round: round.train(models, MIXED, {}),
}


@pytest.mark.parametrize("door", OF_A_GRAPH)
def test_calls_that_need_a_topology_are_refused_without_one_before_training(door, monkeypatch):
    monkeypatch.setattr(training, "local_steps", None)
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
    """Models differ before the exchange and are equal after it."""
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


def test_a_product_with_the_weights_is_told_to_be_a_mix():
    def multiply(models, round):
        models.flat.copy_(torch.as_tensor(round.weights @ models.flat))

    with pytest.raises(ValueError, match=r"without numbers, .*; to multiply .* use round\.mix\("):
        run(phase(multiply), topology=topologies.ring(N))


def test_models_that_are_replaced_are_told_to_be_changed_in_place():
    def replace(models, round):
        models.flat = models.flat * 0.5

    def change(models, round):
        models.flat.copy_(models.flat * 0.5)

    with pytest.raises(
        TypeError, match=r"'tried' must change models in place: .*'flat'; .*models\.flat\.copy_"
    ):
        run(phase(replace))
    assert run(phase(change)).n_rounds == 2


@pytest.mark.parametrize("door", OF_A_GRAPH)
@pytest.mark.parametrize("topology", [None, topologies.ring(N)], ids=["no topology", "ring"])
def test_calls_first_made_in_later_rounds_are_refused(door, topology):
    """Otherwise a missing topology or an unexpected exchange would go unnoticed."""
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


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("bytes", "differ from all columns of the history, got 'bytes' in the phase 'tried'; re"),
        ("node", "differ from all columns of the history, got 'node' in the phase 'tried'; re"),
        ("label", "differ from all columns of the history, got 'label' in the phase 'tried'; re"),
        ("two words", "be an identifier, such as 'moved', got 'two words' in the phase 'tried'"),
        (3, "be an identifier, such as 'moved', got 3 in the phase 'tried'"),
    ],
)
def test_names_of_noted_numbers_must_be_new_identifiers(name, wanted):
    with pytest.raises(ValueError, match=f"^`name` of round.note must {wanted}"):
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
    """Settings do not matter; copies and gradients that the phase requests do."""

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


def test_messages_through_a_server_have_one_size():
    def apply(models, state, round):
        weights = topofl.mixing.metropolis_hastings(topofl.topologies.fully_connected(round.n))
        round.send(weights, np.full(round.n, 8), server=True)
        return state

    algorithm = algorithms.chain("own", exchange=algorithms.Phase(lambda models: {}, apply, {}))
    with pytest.raises(ValueError, match=r"`nbytes` of round.send must be one number .* shape"):
        topofl.run(
            algorithm,
            model=problems.linear(),
            clients=problems.equal_clients(),
            rounds=1,
            seed=0,
        )


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
