"""Unknown keywords of public functions: names, the nearest one, and the page."""

import importlib
import inspect
import itertools
import pickle

import pytest

import topofl
from topofl import algorithms, attacks, clocks, data, metrics, tasks, topologies
from topofl._support.public import public

OPTIONS = (
    *(topofl.Compute, topofl.Evaluation, topofl.Saving, metrics.Hardware, clocks.Clock),
    *(tasks.Task, tasks.Score, data.Dataset, data.Partition, attacks.Attack),
)

OTHERS = ("callbacks", "mixing", "models", "privacy", "topologies")
PACKAGES = [algorithms, attacks, clocks, data, metrics, tasks, topofl]
PACKAGES += (importlib.import_module(f"topofl.{name}") for name in OTHERS)


def functions_of(package):
    """Return the public functions of a package; also the parts of methods, which are not listed."""
    others = [] if package not in (algorithms, topologies) else vars(package)
    names = dict.fromkeys([*package.__all__, *(name for name in others if name[0] != "_")])
    values = [getattr(package, name) for name in names]
    return [one for one in values if inspect.isfunction(one) and one.__module__[:6] == "topofl"]


PUBLIC = [*itertools.chain(*map(functions_of, PACKAGES)), *OPTIONS]


def identify(value):
    return f"{value.__module__.removeprefix('topofl.')}.{value.__name__}"


@pytest.mark.parametrize("function", PUBLIC, ids=identify)
def test_wrong_calls_are_answered_with_names_and_page(function):
    takes = inspect.signature(function).parameters.values()
    names = [p.name for p in takes if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    known = ", ".join(names) or "none"
    if not any(p.kind is p.VAR_KEYWORD for p in takes):
        with pytest.raises(TypeError) as raised:
            function(zzqx_=1)
        start, _, page = str(raised.value).rpartition("; see the reference of ")
        assert start == f"{function.__name__}() has no argument 'zzqx_'; it has {known}"
        module, _, name = page.rpartition(".")
        assert module.count(".") <= 1  # as users import it, not the module in which it is written
        assert getattr(importlib.import_module(module), name) is function
        for name in (name for name in names if len(name) > 3):
            word = name[:-2] + name[:-3:-1] if name[-1] != name[-2] else f"{name}_"
            nearest = rf"has no argument '{word}'; did you mean '{name}'\? It"
            with pytest.raises(TypeError, match=nearest):
                function(**{word: 1})
    if not any(p.kind is p.VAR_POSITIONAL for p in takes):
        n = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in takes) + 1
        with pytest.raises(TypeError) as raised:
            function(*[1] * n)
        start, _, _ = str(raised.value).rpartition("; see the reference of topofl.")
        assert f" without a name, got {n} argument" in start
        assert start.endswith(f"It has {known}")


def test_arguments_without_a_name_are_those_at_the_front():
    with pytest.raises(
        TypeError,
        match=r"^torus\(\) takes only n without a name, got 2 arguments; write the others as "
        r"name=value\. It has n, rows; see the reference of topofl\.topologies\.torus$",
    ):
        topologies.torus(3, 4)
    with pytest.raises(TypeError, match=r"^compare\(\) takes only graphs without .* label_counts,"):
        metrics.compare([topologies.ring(5)], 3)


@pytest.mark.parametrize("function", PUBLIC, ids=identify)
def test_a_public_function_is_pickled_by_name(function):
    assert pickle.loads(pickle.dumps(function)) is function


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (lambda: algorithms.dsgd(0.1, batchsize=8), "'batchsize'; did you mean 'batch_size'? It"),
        (lambda: algorithms.dsgd(0.1, optimizer="adam"), "'optimizer'; use dadam, or compose"),
        (lambda: topologies.dcliques(n=8, clique_sz=4), "'clique_sz'; did you mean 'clique_size'?"),
        (lambda: topofl.Evaluation(metrics=["f1"]), "'metrics'; scores belong to the task"),
        (lambda: topofl.run(algorithms.dsgd(0.1), loss=1), "'loss'; the task of a run has it"),
    ],
)
def test_words_of_other_libraries_are_answered(call, answer):
    with pytest.raises(TypeError) as raised:
        call()
    assert answer in str(raised.value)


def test_other_errors_of_a_call_are_unchanged():
    @public
    def first(value, *, lr=0.1):
        return value + lr

    assert first(1, lr=2) == 3
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'value'$"):
        first(lr=1)
    with pytest.raises(TypeError, match="can only concatenate"):
        first("text", lr=1)
