"""The comparison with the authors' simulator computes and draws, and its verdict can fail."""

import dataclasses

import numpy as np
import pytest

from paper_figures import dcliques_reference as reference


@pytest.fixture(scope="module")
def curves(mnist_root):
    return reference.compute(mnist_root, [0, 1], epochs=1, progress=False)


def test_epochs_before_the_fifth_are_shown_and_not_judged(curves, tmp_path):
    table = reference.claims(curves)
    assert table.column("epoch") == (1, 1, 1)
    assert set(table.column("verdict")) == {"-"}
    for name, epoch, theirs in zip(*(table.column(c) for c in ("topology", "epoch", "simulator %")), strict=True):
        assert theirs == reference.REFERENCE[name][epoch]
    reference.draw(curves, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_runs_are_in_the_papers_setting(curves):
    for histories in curves.values():
        settings = histories[0].meta["settings"]["local"]
        assert (settings["lr"], settings["batch_size"], settings["momentum"]) == (0.1, 128, 0.0)
        assert histories[0].meta["n"] == 100
        assert histories[0].meta["init"] == "independent"


@dataclasses.dataclass
class Told:
    """A history with accuracies that we choose."""

    accuracy: np.ndarray

    def __getitem__(self, name):
        return getattr(self, name)


def told(shift, spread=0.1):
    """Histories whose mean accuracies are the simulator's, off by `shift` points, seeds `spread` points apart."""
    curves = {}
    for name, points in reference.REFERENCE.items():
        base = np.interp(np.arange(11), [0, *points], [10, *points.values()])
        curves[name] = [Told(np.tile((base + shift + off)[:, None] / 100, (1, 3))) for off in (-spread, 0, spread)]
    return curves


def test_verdict_holds_for_curves_like_the_simulators():
    assert set(reference.claims(told(0.0)).column("verdict")) == {"-", "HOLDS"}


def test_verdict_fails_for_curves_that_are_off():
    verdicts = reference.claims(told(2.0))
    judged = [v for v, epoch in zip(verdicts.column("verdict"), verdicts.column("epoch"), strict=True) if epoch >= 5]
    assert set(judged) == {"FAILS"}
    shuffled = told(0.0)
    shuffled["ring"], shuffled["fully-connected"] = shuffled["fully-connected"], shuffled["ring"]
    table = reference.claims(shuffled)
    for name, epoch, verdict in zip(*(table.column(c) for c in ("topology", "epoch", "verdict")), strict=True):
        if epoch >= 5 and name != "D-Cliques + CA":
            assert verdict == "FAILS"


def test_prediction_interval_is_the_t_interval():
    ours = np.array([1.0, 2.0, 3.0])
    half = 4.302652729911275 * 1.0 * np.sqrt(1 + 1 / 3)  # t with 2 degrees of freedom, 97.5 %
    assert reference.could_be_ours(ours, 2 + half - 1e-9)
    assert not reference.could_be_ours(ours, 2 + half + 1e-9)


def test_missing_data_is_an_error_of_one_line(tmp_path, capsys):
    assert reference.main(["--data", str(tmp_path), "--seeds", "2"]) == 2
    assert "error" in capsys.readouterr().err
