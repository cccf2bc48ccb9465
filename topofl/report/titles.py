"""Titles for readers in place of names such as "dcliques(n=100, inter='ring')"."""

import re

from topofl._support.text import split_at_commas

__all__ = ["title_of"]

_SPELLED = {
    "ad_psgd": "AD-PSGD", "apfl": "APFL", "barabasi_albert": "Barabási-Albert", "beer": "BEER",
    "choco_sgd": "CHOCO-SGD", "d2": "D²", "d_equistatic": "D-EquiStatic", "dadam": "DAdam",
    "davis_southern_women": "Davis' southern women", "dcliques": "D-Cliques",
    "de_bruijn": "de Bruijn", "deepsqueeze": "DeepSqueeze", "dfedavgm": "DFedAvgM",
    "dfedpgp": "DFedPGP", "dfedsam": "DFedSAM", "dispfl": "DisPFL", "dp_dsgd": "DP-DSGD",
    "dpfl": "DPFL", "dsgd": "D-SGD", "dsgt": "DSGT", "erdos_renyi": "Erdős-Rényi",
    "extra": "EXTRA", "fedavg": "FedAvg", "fedprox": "FedProx", "fedrep": "FedRep",
    "karate_club": "Zachary's karate club", "kautz": "Kautz", "od_equidyn": "OD-EquiDyn",
    "osgp": "OSGP", "ou_equidyn": "OU-EquiDyn", "pfeddst": "PFedDST", "pfedgraph": "pFedGraph",
    "qg_dsgdm": "QG-DSGDm", "relay_sgd": "RelaySGD", "sab": "SAB", "stl_fw": "STL-FW",
    "u_equistatic": "U-EquiStatic",
}  # fmt: skip
"""Names that are not spelled as their identifier with spaces."""

_CALL = re.compile(r"(\w+)\((.*)\)")
_PAIR = re.compile(r"(\w+)=(.+)")
_COUNTS = re.compile(r"label_counts\[(\d+)x\d+\]")
_ATTACK = re.compile(r"(?=, \d+ attackers? \()")


def title_of(name: str) -> str:
    """Return the title of a graph or run by its name; names given by users are unchanged.

    Parameters
    ----------
    name
        Name of a topology, or of a run as "method over topology".

    Examples
    --------
    >>> title_of("dcliques(n=100, clique_size=10, inter='small_world', seed=0)")
    'D-Cliques, 100 nodes, clique size 10, inter small world, seed 0'
    >>> title_of("clique_averaging over link_failures(torus(n=9), fail=0.1)")
    'Clique averaging over link failures, torus (9 nodes), fail 0.1'
    >>> title_of("my graph")
    'my graph'
    """
    method, over, graph = name.partition(" over ")
    if over and re.fullmatch(r"\w+", method):
        return f"{_capitalized(_spelled(method))} over {_graph(graph)}"
    graph = _graph(name)
    return name if graph == name else _capitalized(graph)


def _graph(name: str) -> str:
    """Return "ring, 9 nodes" for "ring(n=9)", followed by a note on attackers if there is one."""
    name, *attack = _ATTACK.split(name, maxsplit=1)
    call = _CALL.fullmatch(name)
    words = name if call is None else ", ".join([_spelled(call[1]), *_arguments(call[2])])
    return words + "".join(attack)


def _arguments(text: str) -> list[str]:
    parts, _ = split_at_commas(text, {"(": ")", "[": "]", "{": "}"})
    return [_argument(part.strip()) for part in parts if part.strip()]


def _argument(text: str) -> str:
    pair = _PAIR.fullmatch(text)
    if pair is None:
        counts = _COUNTS.fullmatch(text)
        return _value(text) if counts is None else f"{counts[1]} nodes"
    key, value = pair[1].replace("_", " "), pair[2]
    if key == "n":
        return f"{value} nodes"
    if value in ("True", "False"):
        return key if value == "True" else f"no {key}"
    return f"{key} {_value(value)}"


def _value(text: str) -> str:
    call = _CALL.fullmatch(text)
    if call is not None:
        inner = ", ".join(_arguments(call[2]))
        return f"{_spelled(call[1])} ({inner})" if inner else _spelled(call[1])
    return text.strip("'").replace("_", " ") if text.startswith("'") else text


def _spelled(identifier: str) -> str:
    return _SPELLED.get(identifier, identifier.replace("_", " "))


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:] if text[:1].islower() and text[:2] != "pF" else text
