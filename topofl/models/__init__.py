"""The networks of the papers, and small ones, as plain ``torch.nn`` modules.

The last layer of each is called ``head``: personalized methods keep the parameters whose names
start with ``head.``; all others are the body. Networks use GroupNorm, as the papers do;
:func:`with_group_norm` puts it in the place of BatchNorm in other networks, :func:`lora` lets
nodes train small adapters of a network instead of the network, and :func:`of_kinds` gives nodes
different networks. Building a model neither reads nor changes torch's global generator, and its
parameters are float32 on the CPU whatever torch's defaults are.
"""

from topofl.models.changed import lora, of_kinds, with_group_norm
from topofl.models.networks import (
    dpfl_cnn,
    dpfl_femnist_cnn,
    fedavg_cnn,
    gn_lenet,
    logistic_regression,
    mlp,
    mnist1d_cnn,
    resnet18_gn,
)

__all__ = [
    "dpfl_cnn",
    "dpfl_femnist_cnn",
    "fedavg_cnn",
    "gn_lenet",
    "logistic_regression",
    "lora",
    "mlp",
    "mnist1d_cnn",
    "of_kinds",
    "resnet18_gn",
    "with_group_norm",
]
