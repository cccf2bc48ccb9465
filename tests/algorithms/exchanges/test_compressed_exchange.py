"""Checks of compressors, text for compressors, and sizes of messages."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import topofl
from tests import problems
from topofl import algorithms, config
from topofl._support.seeding import random_keys, stream
from topofl.algorithms.exchanges import compressors
from topofl.algorithms.exchanges.compressors import (
    Compressor,
    check_compressor,
    check_messages,
    message_bytes,
)


def rng(key=0):
    return stream(0, "compressors", key)


def packed(numbers, bits):
    """Return non-negative integers, of some number of bits each, as bytes."""
    return np.packbits([number >> b & 1 for number in numbers for b in range(bits)]).tobytes()


def unpacked(content, bits, count):
    """Return the integers from which `packed` made some bytes."""
    each = np.unpackbits(np.frombuffer(content, np.uint8), count=count * bits).reshape(count, bits)
    return (each.astype(np.int64) << np.arange(bits)).sum(1)


def encoded_top_k(x, share, seed):
    """Return a message with places in few bits or a bit per number, and what is read from it."""
    del seed
    d = len(x)
    row = algorithms.top_k(share).apply(torch.from_numpy(x)[None], rng()).numpy()[0]
    places, bits = np.flatnonzero(row), math.ceil(math.log2(d))
    if len(places) * bits < d:
        message = row[places].tobytes() + packed(places, bits)
        found = unpacked(message[len(places) * x.itemsize :], bits, len(places))
    else:
        message = row[places].tobytes() + packed((row != 0).astype(int), 1)
        found = np.flatnonzero(unpacked(message[len(places) * x.itemsize :], 1, d))
    read = np.zeros_like(x)
    read[found] = np.frombuffer(message[: len(places) * x.itemsize], x.dtype)
    return message, row, read


def encoded_random_k(x, share, seed):
    """Return a message of numbers and a seed, from which places are drawn again."""
    d, k = len(x), math.ceil(share * len(x))
    row = algorithms.random_k(share).apply(torch.from_numpy(x)[None], rng(seed)).numpy()[0]
    key = rng(seed).integers(2**63, size=1)
    places = np.sort(np.argsort(random_keys(0, key, np.arange(d))[0])[:k])
    message = row[places].tobytes() + key.tobytes()
    again = np.frombuffer(message[-8:], np.int64)
    read = np.zeros_like(x)
    read[np.sort(np.argsort(random_keys(0, again, np.arange(d))[0])[:k])] = np.frombuffer(
        message[:-8], x.dtype
    )
    return message, row, read


def encoded_sign(x, _, seed):
    """Return a message of one number and a bit for each sign."""
    del seed
    row = algorithms.sign().apply(torch.from_numpy(x)[None], rng()).numpy()[0]
    message = np.abs(row[:1]).tobytes() + packed((row > 0).astype(int), 1)
    scale = np.frombuffer(message[: x.itemsize], x.dtype)
    return message, row, np.where(unpacked(message[x.itemsize :], 1, len(x)) > 0, scale, -scale)


def encoded_quantized(x, levels, seed):
    """Return a message of the norm and a small integer for each number."""
    d = len(x)
    row = algorithms.quantized(levels).apply(torch.from_numpy(x)[None], rng(seed)).numpy()[0]
    norm = np.linalg.norm(x.astype(float)).astype(x.dtype)
    step = float(norm) / levels / (1 + min(d / levels**2, math.sqrt(d) / levels))
    bits = math.ceil(math.log2(2 * levels + 1))
    message = norm.tobytes() + packed(np.rint(row / step).astype(int) + levels, bits)
    return (
        message,
        row,
        ((unpacked(message[x.itemsize :], bits, d) - levels) * step).astype(x.dtype),
    )


ENCODED = {
    "top_k(0.01)": (encoded_top_k, algorithms.top_k(0.01), 0.01),
    "top_k(0.5)": (encoded_top_k, algorithms.top_k(0.5), 0.5),
    "random_k(0.1)": (encoded_random_k, algorithms.random_k(0.1), 0.1),
    "sign": (encoded_sign, algorithms.sign(), None),
    "quantized(1)": (encoded_quantized, algorithms.quantized(1), 1),
    "quantized(4)": (encoded_quantized, algorithms.quantized(4), 4),
    "quantized(7)": (encoded_quantized, algorithms.quantized(7), 7),
}


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("d", [100, 128, 1001])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_messages_hold_what_is_counted_and_can_be_read(name, d, dtype):
    encode, compressor, argument = ENCODED[name]
    message, row, read = encode(
        np.random.default_rng(0).standard_normal(d).astype(dtype), argument, 5
    )
    assert len(message) == compressor.nbytes(d, np.dtype(dtype).itemsize)
    np.testing.assert_allclose(read, row, rtol=1e-6 if dtype == np.float32 else 1e-14, atol=0)


@pytest.mark.parametrize(
    ("compressor", "d", "wanted"),
    [
        (algorithms.top_k(0.01), 1000, 10 * 4 + 13),  # 10 places of 10 bits are 100 bits
        (
            algorithms.top_k(0.5),
            1000,
            500 * 4 + 125,
        ),  # a bit a number: 500 places of 10 bits are more
        (algorithms.random_k(0.01), 1000, 10 * 4 + 8),
        (algorithms.sign(), 1000, 4 + 125),
        (algorithms.quantized(1), 1000, 4 + 250),  # 3 values: 2 bits
        (algorithms.quantized(4), 1000, 4 + 500),  # 9 values: 4 bits
        (algorithms.no_compression(), 1000, 4000),
    ],
    ids=str,
)
def test_message_sizes_on_small_examples(compressor, d, wanted):
    assert compressor.nbytes(d, 4) == wanted


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: algorithms.top_k(0.0), ValueError, "`share` must be a finite number above 0"),
        (
            lambda: algorithms.top_k(1.0),
            ValueError,
            r"`share` must be above 0 and below 1.*no_compression\(\)",
        ),
        (lambda: algorithms.random_k(1.5), ValueError, "`share`"),
        (lambda: algorithms.random_k("all"), TypeError, "`share`"),
        (lambda: algorithms.quantized(0), ValueError, "`levels` must be between 1"),
        (lambda: algorithms.quantized(2**31), ValueError, "`levels` must be between 1"),
        (lambda: algorithms.quantized(1.5), TypeError, "`levels`"),
        (
            lambda: compressors.check_compressor(algorithms.top_k),
            TypeError,
            "`compressor` must be a Compressor",
        ),
        (
            lambda: compressors.check_consensus_step(1.1),
            ValueError,
            "`gamma` must be above 0 and at most 1",
        ),
        (lambda: compressors.check_consensus_step(0.0), ValueError, "`gamma`"),
    ],
    ids=[
        "no share",
        "all",
        "more than all",
        "text",
        "no level",
        "too many levels",
        "half a level",
        "function",
        "beyond the mean",
        "no step",
    ],
)
def test_bad_arguments_are_named(build, error, message):
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize(
    ("compressor", "d"),
    [
        (algorithms.top_k(0.99), 1000),
        (algorithms.random_k(0.9), 10),
        (algorithms.sign(), 1),
        (algorithms.quantized(2**23), 2),
    ],
    ids=str,
)
def test_messages_that_grow_raise(compressor, d):
    with pytest.raises(
        ValueError, match=r"`compressor` must make messages smaller, .* or no_compression\(\)"
    ):
        compressors.message_bytes(compressor, torch.empty(3, d))
    assert compressors.message_bytes(algorithms.no_compression(), torch.empty(3, d)) == 4 * d


@pytest.mark.parametrize(
    "text", ["top_k(0.2)", "top_k(share=0.2)", "random_k(0.2)", "sign", "sign()", "quantized(7)"]
)
def test_text_stands_for_compressors(text):
    made = compressors.check_compressor(text)
    wanted = {
        "t": algorithms.top_k(0.2),
        "r": algorithms.random_k(0.2),
        "s": algorithms.sign(),
    }.get(text[0])
    wanted = wanted or algorithms.quantized(7)
    assert str(made) == str(wanted)
    values = torch.randn(3, 40, dtype=torch.float64)
    drawn = (one.apply(values, np.random.default_rng(0)) for one in (made, wanted))
    assert torch.equal(*drawn)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("topk(0.1)", "by one of top_k, random_k, sign, quantized, no_compression, got 'topk"),
        ("top_k", "missing 1 required positional argument"),
        ("top_k(2)", "`share` must be above 0 and below 1"),
        ("os.remove('x')", "by one of"),
        ("top_k(0.1", "by one of"),
    ],
)
def test_invalid_text_for_compressors_raises(text, match):
    with pytest.raises(ValueError, match=match):
        compressors.check_compressor(text)


WRONG = {
    "in place": ({"apply": lambda values, rng: values.mul_(0.5)}, "must not change its values"),
    "other shape": (
        {"apply": lambda values, rng: values[:, :1]},
        "must return values of shape .* got shape",
    ),
    "branch": (
        {"apply": lambda values, rng: values + 1 if values.sum() > 0 else values},
        "the compressor 'mine' must work on tensors without values .*meta.*, on which a run plays "
        "its first rounds to see what it needs: .*; use torch's functions",
    ),
    "numpy": (
        {"apply": lambda values, rng: torch.from_numpy(values.numpy())},
        "the compressor 'mine' must work on tensors without values .*meta.*, on which a run plays "
        "its first rounds to see what it needs: .*; use torch's functions",
    ),
    "text": (
        {"contraction": lambda d: "half"},
        "must return a number above 0 and at most 1, got 'half'",
    ),
    "negative bytes": (
        {"nbytes": lambda d, itemsize: -5},
        "must return a whole number of bytes, got -5",
    ),
    "parts of bytes": (
        {"nbytes": lambda d, itemsize: d / 3},
        "must return a whole number of bytes",
    ),
    "expands": (
        {"contraction": lambda d: 2.0},
        "must return a number above 0 and at most 1, got 2.0",
    ),
    "does not contract": (
        {"contraction": lambda d: float("nan")},
        "must return a number above 0 and at most 1, got nan",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_custom_compressors_are_checked(name):
    change, match = WRONG[name]
    compressor = replace(algorithms.no_compression(), name="mine", **change)
    clients = problems.equal_clients()
    with pytest.raises(ValueError, match=match):
        topofl.run(
            algorithms.choco_sgd(0.1, compressor=compressor, gamma=0.5, batch_size=4),
            model=problems.linear(),
            clients=clients,
            topology=topofl.topologies.ring(6),
            rounds=1,
            seed=0,
        )


@pytest.mark.parametrize(
    ("part", "function", "takes"),
    [
        ("apply", lambda values: values, r"\(values, rng\), got one of \(values\)"),
        ("nbytes", lambda d: d, r"\(d, itemsize\), got one of \(d\)"),
        ("contraction", lambda d, itemsize: 1.0, r"\(d\), got one of \(d, itemsize\)"),
    ],
    ids=["apply", "nbytes", "contraction"],
)
def test_functions_of_compressors_take_their_arguments(part, function, takes):
    compressor = replace(algorithms.no_compression(), name="mine", **{part: function})
    with pytest.raises(
        TypeError, match=f"`{part}` of the compressor 'mine' must be a function of {takes}"
    ):
        compressors.check_compressor(compressor)


def test_a_configuration_names_compressors():
    tables = {
        "data": {"name": "digits", "partition": "shards", "n": 10},
        "topology": "ring,n=10",
        "algorithm": {
            "name": "choco_sgd",
            "lr": 0.1,
            "compressor": "quantized(levels=7)",
            "gamma": 0.3,
        },
        "run": {"rounds": 1, "seed": 0},
    }
    built = config.build(tables)
    assert built.algorithm.settings["exchange"]["compressor"] == "quantized(levels=7)"
    again = config.build(built.tables)
    assert again.algorithm.settings == built.algorithm.settings


TOLD = Compressor(
    "mine", lambda values, rng: 0.5 * values, lambda d, itemsize: 2 * d, lambda d: 0.5, False
)


def test_numbers_of_numpy_are_numbers():
    typed = replace(
        TOLD, nbytes=lambda d, itemsize: np.int64(2 * d), contraction=lambda d: np.float32(0.5)
    )
    values = torch.ones(3, 10)
    check_messages(typed, values)
    assert type(message_bytes(typed, values)) is int


@pytest.mark.parametrize(
    ("apply", "contraction", "match"),
    [
        (
            lambda values, rng: 2 * values,
            0.9,
            r"`contraction` of mine\(\) must be a delta .* got 0.9, but .* is 1; declare",
        ),
        (lambda values, rng: 0.5 * values, 0.9, r"\|\|x\|\|\^2 is 0.25"),
        (lambda values, rng: values / 0, 0.9, "NaN or infinity for a row of finite numbers"),
        (
            lambda values, rng: values / values.norm(dim=1, keepdim=True),
            0.1,
            "NaN or infinity for a row of zeros",
        ),
    ],
    ids=["doubles", "halves", "infinite", "zeros"],
)
@pytest.mark.parametrize("method", ["choco_sgd", "beer", "deepsqueeze"])
def test_declared_contractions_are_measured_before_a_run(method, apply, contraction, match):
    mine = replace(TOLD, apply=apply, contraction=lambda d: contraction)
    with pytest.raises(ValueError, match=match):
        topofl.run(
            getattr(algorithms, method)(0.1, gamma=0.1, compressor=mine),
            model=problems.linear(),
            clients=problems.equal_clients(),
            topology=topofl.topologies.ring(6),
            rounds=1,
            seed=0,
        )


@pytest.mark.parametrize("d", [1, 7, 650, 200_000])
def test_compressors_of_the_library_pass_the_measurement(d):
    for text in (
        "top_k(0.1)",
        "random_k(0.1)",
        "random_k(0.9)",
        "sign",
        "quantized(1)",
        "quantized(7)",
    ):
        compressor = check_compressor(text)
        if compressor.nbytes(d, 4) <= 4 * d:
            check_messages(compressor, torch.ones(2, d))


def test_errors_in_compressors_are_named():
    broken = replace(TOLD, apply=lambda values, rng: {}["k"])
    with pytest.raises(
        ValueError,
        match=r"`apply` of the compressor 'mine' .* shape \(2, 3\), but it raised KeyError: 'k'",
    ):
        check_compressor(broken).apply(torch.ones(2, 3), np.random.default_rng(0))
