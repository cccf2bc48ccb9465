"""``topofl list``."""

import pytest

from topofl import algorithms, models, topologies
from topofl._spec import catalogue
from topofl.cli import main
from topofl.cli.declared import KINDS_OF_NAMES


def test_list(capsys):
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    networks = [name for name in models.__all__ if name != "with_group_norm"]
    for name in [
        *topologies.__all__,
        *algorithms.__all__,
        *networks,
        "shards",
        "digits",
        "metropolis_hastings",
    ]:
        assert f"  {name}(" in text
    assert "with_group_norm" not in text
    assert "  ring(n)\n      Return the cycle" in text
    assert "  lazy(" not in text


def test_list_of_one_kind(capsys):
    assert main(["list", "algorithm"]) == 0
    text = capsys.readouterr().out
    assert "dsgd(lr, *, batch_size=128, momentum=0.0, local_steps=1)" in text
    assert "ring" not in text.split()
    assert ", head='head', fine_tune_epochs=None)" in text  # as a configuration says it
    assert "Part(" not in text


def test_all_kinds_of_names_are_listed():
    assert [*catalogue(), "metric"] == list(KINDS_OF_NAMES)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("compressor", "top_k(share)"),
        ("clock", "exponential(mean)"),
        ("attack", "sign_flip(nodes, scale=1.0)"),
        ("schedule", "cosine(lr, *, rounds, warmup=0, end=0.0)"),
        ("algorithm", "timed(algorithm, clock=None)"),
    ],
)
def test_what_arguments_may_be_is_listed(capsys, kind, line):
    assert main(["list", kind]) == 0
    assert f"  {line}\n" in capsys.readouterr().out


def test_list_shows_which_arguments_need_their_names(capsys):
    assert main(["list", "topology"]) == 0
    shown = capsys.readouterr().out
    assert "random_regular(n, k, *, seed)" in shown
    assert "circulant(n, offsets=[1, 2], *, directed=False)" in shown
