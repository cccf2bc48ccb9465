"""references.bib has what docstrings quote, once each, and runs cite exactly what they used."""

import re

import pytest

import topofl
from topofl import _spec, algorithms, attacks, data, metrics, models, topologies
from topofl.citations import bibtex, functions_of_tables, quoted, references, works_of

FUNCTIONS = {
    **{name: f for functions in _spec.catalogue().values() for name, f in functions.items()},
    **{name: getattr(data, name) for name in data.__all__},
    **{name: getattr(metrics, name) for name in metrics.__all__},
}
QUOTED = [(name, *pair) for name, function in FUNCTIONS.items() for pair in quoted(function)]


def cited(text):
    """Return the functions that a text cites, by the keys of the entries below their names."""
    found = re.findall(r"^% (.*)\n@\w+\{(\w+),$", text, re.MULTILINE)
    return {key: names.split(", ") for names, key in found}


@pytest.mark.parametrize(("name", "title", "year"), QUOTED)
def test_a_quoted_title_has_one_entry(name, title, year):
    assert len([work for work in references() if work.is_cited_by(title, year)]) == 1


def test_every_entry_is_quoted_and_whole():
    used = {work.key for function in FUNCTIONS.values() for work in works_of(function)}
    keys = [work.key for work in references()]
    assert keys == ["topofl", *sorted(used)]
    for work in references():
        assert {"author", "title", "year"} <= set(work.fields)
        assert work.text.count("{") == work.text.count("}")
        assert len(re.findall(r"^ {2}\w+ = ", work.text, re.MULTILINE)) == len(work.fields)


def test_every_method_cites_its_source():
    methods = _spec.catalogue()["algorithm"]
    assert [name for name, method in methods.items() if not works_of(method)] == ["timed"]


def test_a_history_cites_what_its_run_used():
    clients = data.noisy(data.shards(data.digits(), n=8, per_node=2, seed=0), 0.1)
    history = topofl.run(
        algorithms.choco_sgd(
            lr=algorithms.cosine(0.1, rounds=5), gamma=0.3, compressor=algorithms.top_k(0.1)
        ),
        model=models.logistic_regression(64),
        clients=clients,
        topology=topologies.exponential(8),
        attackers=attacks.sign_flip([1]),
        rounds=1,
        seed=0,
    )
    assert cited(topofl.citations([history, metrics.modularity])) == {
        "alpaydin1998optical": ["digits"],
        "bellet2022dcliques": ["exponential", "shards"],
        "koloskova2019decentralized": ["choco_sgd"],
        "koloskova2020arbitrary": ["choco_sgd"],
        "li2019rsa": ["sign_flip"],
        "li2022federated": ["noisy"],
        "loshchilov2017sgdr": ["cosine"],
        "mcmahan2017communication": ["shards"],
        "newman2004finding": ["modularity"],
        "stich2018sparsified": ["top_k"],
        "ying2021exponential": ["exponential"],
    }


def test_names_of_arguments_are_not_cited():
    tables = {
        "data": {"name": "digits", "partition": {"name": "shards", "n": 8}, "flip_labels": 2},
        "topology": {"name": "link_failures", "base": {"name": "ring", "n": 8}, "fail": 0.1},
        "algorithm": {"name": "dp_dsgd", "lr": 0.1, "clip": 1.0, "noise": 0.1},
        "model": "logistic_regression",
        "mixing": "max_degree",
    }
    assert list(functions_of_tables(tables)) == [
        *("digits", "shards", "link_failures", "ring", "max_degree", "dp_dsgd"),
        *("logistic_regression", "flip_labels"),
    ]
    text = functions_of_tables({"algorithm": "choco_sgd,lr=0.1,compressor=top_k(0.1)"})
    assert list(text) == ["choco_sgd", "top_k"]


def test_the_library_is_cited_with_its_version():
    assert bibtex({}).startswith("@software{topofl,")
    assert f"version = {{{topofl.__version__}}}" in bibtex({})


def test_what_is_not_topofls_is_refused():
    with pytest.raises(
        TypeError, match=r"`used` must be histories and functions of topofl .* got 3"
    ):
        topofl.citations(3)  # pyright: ignore
