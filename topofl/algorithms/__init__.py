"""Published algorithms, each a docstring with its equations over one chain of phases; ``__all__`` lists the algorithms.

The parts they are made of (:func:`chain`, :func:`sgd`, :func:`gossip`) are here too, for your own.
"""

from topofl.algorithms.decentralized import centralized, clique_averaging, dsgd, local_only
from topofl.algorithms.exchange import gossip as gossip
from topofl.algorithms.local import sgd as sgd
from topofl.algorithms.phase import Algorithm as Algorithm
from topofl.algorithms.phase import Phase as Phase
from topofl.algorithms.phase import chain as chain

__all__ = ["centralized", "clique_averaging", "dsgd", "local_only"]
