"""One table of all algorithms, with the arguments for the tests that hold for every algorithm.

An algorithm without a row fails ``test_every_algorithm_has_a_row``. Its row gives it the tests of
conformance, of runs that are killed and resumed, of estimated messages, and of random calls.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ALGORITHMS", "Row"]


@dataclass(frozen=True)
class Row:
    """Arguments and properties of an algorithm, for tests.

    Parameters
    ----------
    lr
        Learning rate with which the loss falls by half in 25 rounds.
    compared
        Test module that compares it with a naive loop over nodes: a name in this folder, or a path
        under ``tests``.
    required
        Required arguments of a call in addition to `lr`.
    options
        Further arguments of the run in which the loss falls by half.
    killed
        Arguments of the run that is killed and resumed, where they differ from `required`.
    batch_size
        Batch size of the run in which the loss falls by half.
    module
        Name of its module, if different from its own name.
    validated
        Whether nodes choose peers by validation examples.
    common_start
        Whether all nodes must start from one model.
    mixes
        Whether its rounds end in ``round.mix``; otherwise it is killed after training.
    random_messages
        Whether the number of messages is drawn at random or learned.
    """

    lr: float
    compared: str
    required: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    killed: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = 8
    module: str = ""
    validated: bool = False
    common_start: bool = False
    mixes: bool = True
    random_messages: bool = False

    @property
    def arguments(self) -> dict[str, Any]:
        """All arguments of the run in which the loss falls by half."""
        return {"lr": self.lr, "batch_size": self.batch_size, **self.required, **self.options}


EPOCH = {"epochs": 1}
HEAD = {"epochs": 1, "head": "5"}
SOME = {"epochs": 1, "participation": 0.5}
CLOCK = {"compute": [1, 2.5, 1, 0.7, 3, 1], "delay": 0.3}

ALGORITHMS: dict[str, Row] = {
    # references
    "centralized": Row(
        0.1, "engine/test_equivalence", killed={"momentum": 0.9}, batch_size=48, mixes=False
    ),
    "local_only": Row(0.1, "engine/test_equivalence", killed={"local_steps": 2}, mixes=False),
    # decentralized
    "clique_averaging": Row(0.1, "engine/test_equivalence", killed={"momentum": 0.9}),
    "dadam": Row(
        0.02,
        "algorithms/decentralized/test_momentum",
        killed={"track": True, "decay": 0.01, "local_steps": 2},
    ),
    "dfedavgm": Row(0.05, "algorithms/personalized/test_personalized", options=EPOCH, killed=EPOCH),
    "dfedavgm_p": Row(
        0.05,
        "algorithms/personalized/test_personalized",
        options=HEAD | {"head_lr": 0.05},
        killed=HEAD,
        module="dfedavgm",
    ),
    "dfedsam": Row(
        0.05,
        "algorithms/decentralized/test_momentum",
        options=EPOCH,
        killed={"epochs": 1, "momentum": 0.9, "gossip_steps": 2},
    ),
    "dp_dsgd": Row(
        0.1,
        "algorithms/decentralized/test_dp_dsgd",
        options={"clip": 10.0, "noise": 0.01},
        killed={"steps": 2, "noise": 0.1},
    ),
    "dsgd": Row(0.1, "engine/test_equivalence", killed={"momentum": 0.9, "local_steps": 2}),
    "osgp": Row(
        0.05,
        "algorithms/personalized/test_personalized",
        options=EPOCH,
        killed={"epochs": 1, "delay": 2},
    ),
    "qg_dsgdm": Row(0.05, "algorithms/decentralized/test_momentum", killed={"nesterov": True}),
    "relay_sgd": Row(0.2, "algorithms/decentralized/test_relay_sgd", killed={"momentum": 0.9}),
    # bias-free
    "d2": Row(0.1, "algorithms/bias_free/test_bias_free"),
    "dsgt": Row(0.1, "test_corrected"),
    "extra": Row(0.1, "algorithms/bias_free/test_bias_free"),
    "local_gt": Row(
        0.05,
        "algorithms/bias_free/test_bias_free",
        options={"local_steps": 2},
        killed={"local_steps": 2, "global_lr": 0.8},
    ),
    "push_diging": Row(0.1, "algorithms/bias_free/test_bias_free"),
    "sab": Row(0.1, "algorithms/bias_free/test_bias_free"),
    # compressed
    "beer": Row(
        0.1,
        "algorithms/compressed/test_compressed",
        required={"gamma": 0.3},
        killed={"compressor": "random_k(0.3)"},
    ),
    "choco_sgd": Row(
        0.1,
        "algorithms/compressed/test_compressed",
        options={"gamma": 0.3},
        killed={"momentum": 0.9, "compressor": "random_k(0.3)"},
    ),
    "deepsqueeze": Row(
        0.1,
        "algorithms/compressed/test_compressed",
        required={"gamma": 0.1},
        killed={"gamma": 0.3, "compressor": "quantized(3)"},
    ),
    # Byzantine-robust
    "clipped_gossip": Row(
        0.1, "algorithms/exchanges/test_robust", required={"delta": 0.3}, killed={"momentum": 0.9}
    ),
    "coordinate_median": Row(0.1, "algorithms/exchanges/test_robust", killed={"momentum": 0.9}),
    "self_centered_clipping": Row(0.5, "algorithms/exchanges/test_robust", required={"tau": 1.0}),
    "trimmed_mean": Row(
        0.1, "algorithms/exchanges/test_robust", required={"trim": 0}, killed={"momentum": 0.9}
    ),
    # asynchronous
    "ad_psgd": Row(
        0.1,
        "algorithms/exchanges/test_events",
        killed={"clock": CLOCK | {"bandwidth": 1e4}},
        mixes=False,
    ),
    "random_walks": Row(
        0.1,
        "algorithms/exchanges/test_events",
        killed={"walks": 3, "merge": True, "clock": CLOCK},
        mixes=False,
        random_messages=True,
    ),
    # with a server
    "fedadam": Row(
        0.05,
        "algorithms/server/test_server",
        options=EPOCH,
        killed=SOME,
        module="fedopt",
        common_start=True,
    ),
    "fedavg": Row(0.05, "algorithms/personalized/test_personalized", options=EPOCH, killed=SOME),
    "fedavgm": Row(
        0.05,
        "algorithms/server/test_server",
        options=EPOCH,
        killed=SOME,
        module="fedopt",
        common_start=True,
    ),
    "feddyn": Row(
        0.05, "algorithms/server/test_server", options=EPOCH, killed=SOME, common_start=True
    ),
    "fednova": Row(
        0.05,
        "algorithms/server/test_server",
        options=EPOCH,
        common_start=True,
        killed={"steps": [1, 2, 3, 1, 2, 3], "momentum": 0.5, "participation": 0.5},
    ),
    "fedprox": Row(
        0.05,
        "algorithms/personalized/test_baselines",
        options=EPOCH,
        killed=SOME | {"strength": [0.0, 0.1, 0.2, 0.5, 1.0, 2.0]},
    ),
    "fedyogi": Row(
        0.05,
        "algorithms/server/test_server",
        options=EPOCH,
        killed=SOME,
        module="fedopt",
        common_start=True,
    ),
    "scaffold": Row(0.05, "test_corrected", options=EPOCH, killed=SOME),
    # personalized
    "apfl": Row(0.05, "algorithms/personalized/test_baselines", options=EPOCH, killed=SOME),
    "dfedpgp": Row(
        0.05,
        "algorithms/personalized/test_personalized",
        options=HEAD | {"head_lr": 0.05},
        killed=HEAD | {"mode": "push"},
    ),
    "dispfl": Row(
        0.1,
        "algorithms/personalized/test_dispfl",
        required={"rounds": 25},
        options=EPOCH,
        killed={"epochs": 1, "rounds": 7, "different_initial": True},
    ),
    "ditto": Row(
        0.05,
        "algorithms/personalized/test_personalized",
        options=EPOCH | {"personal_epochs": 1},
        killed=SOME | {"personal_epochs": 1},
    ),
    "fedbabu": Row(0.2, "algorithms/personalized/test_personalized", options=HEAD, killed=HEAD),
    "fedper": Row(
        0.05,
        "algorithms/personalized/test_personalized",
        options=HEAD,
        killed=HEAD | {"participation": 3},
    ),
    "fedrep": Row(0.05, "algorithms/personalized/test_personalized", options=HEAD, killed=HEAD),
    "knn_per": Row(
        0.05, "algorithms/personalized/test_baselines", options=HEAD, killed=HEAD | {"k": 3}
    ),
    "per_fedavg": Row(
        0.05, "algorithms/personalized/test_baselines", options={"epochs": 2}, killed=EPOCH
    ),
    # learned graphs
    "dpfl": Row(
        0.05,
        "algorithms/exchanges/test_greedy",
        options=EPOCH,
        killed={"epochs": 1, "budget": 2, "every": 2},
        validated=True,
        random_messages=True,
    ),
    "pfeddst": Row(
        0.05,
        "algorithms/exchanges/test_scored",
        options=HEAD | {"k": 2},
        killed=HEAD | {"k": 1},
        validated=True,
    ),
    "pfedgraph": Row(
        0.05,
        "algorithms/exchanges/test_similar",
        options=EPOCH,
        killed={"epochs": 1, "regulariser": 0.1},
        common_start=True,
    ),
    "random_collaboration": Row(
        0.05,
        "algorithms/exchanges/test_greedy",
        required={"budget": 2},
        options=EPOCH,
        killed=EPOCH,
        module="dpfl",
    ),
}
