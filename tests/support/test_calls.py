"""Function calls given as text."""

import pytest

from topofl import clocks
from topofl._support.calls import evaluate_call

FUNCTIONS = {"pair": lambda a, b=0: (a, b), "range": range}
OWN = """
from topofl.algorithms import Compressor

def half(bits=16):
    return Compressor("half", lambda values, rng: values.bfloat16().to(values.dtype),
                      lambda d, itemsize: bits * d // 8, lambda d: 1 - 2**-16, unbiased=False)

factor = 2.0
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Return the name of a user-defined module on the path."""
    name = f"compressor_of_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def evaluated(text):
    return evaluate_call("x", text, FUNCTIONS, "pair(1)")


def test_calls_are_evaluated():
    assert evaluated("pair(1, b=[2, 3])") == (1, [2, 3])
    assert evaluated(" pair(pair(1), b=pair(a=2)) ") == ((1, 0), (2, 0))


@pytest.mark.parametrize("text", ["pair(a=1, a=2)", "pair(pair(1, b=2, b=3))"])
def test_a_repeated_keyword_is_refused(text):
    with pytest.raises(ValueError, match=r"^`x` must set `[ab]` once, got it twice in 'pair"):
        evaluated(text)
    with pytest.raises(ValueError, match=r"`clock\.compute` must set `mean` once, got it twice"):
        clocks.Clock(compute="exponential(mean=1, mean=2)")


@pytest.mark.parametrize("text", ["other(1)", "pair(__import__('os'))", "pair(*[1])", "3", "a b"])
def test_texts_that_are_not_calls_are_refused(text):
    with pytest.raises(ValueError, match=r"`x` must be such as pair\(1\), by one of pair, range"):
        evaluated(text)


def test_functions_of_modules_are_called(own):
    assert evaluate_call("x", f"{own}:half", {}, "").nbytes(8, 4) == 16
    assert evaluate_call("x", f" {own}:half(bits=8)", {}, "").nbytes(8, 4) == 8
    with pytest.raises(
        ValueError, match=r"`x` must be such as pair\(1\), got .*unexpected keyword"
    ):
        evaluated(f"{own}:half(bit=8)")
    with pytest.raises(ValueError, match=r"`x` names .* no function `hal`.* did you mean 'half'"):
        evaluated(f"{own}:hal")
    with pytest.raises(TypeError, match=r"`x` names .*`factor` .* must be a function, got 2"):
        evaluated(f"{own}:factor")
    with pytest.raises(ValueError, match=r"`x` names .*Python finds no module absent_module"):
        evaluated("absent_module:half")
    with pytest.raises(ValueError, match=r"`x` must be such as pair\(1\), by one of pair, range, "):
        evaluated(f"{own}:half(1")
