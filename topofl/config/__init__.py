"""Experiments as TOML files, with one table per function, whose keys are its arguments.

::

    [data]                       # topofl.data: a dataset and its partition
    name = "digits"
    partition = "shards"
    n = 50
    seed = 0                     # of the partition; `split_seed` is that of the train-test split
    match_test = "disjoint"      # test data per node (data.match_test); default: shared by all
    with_validation = 0.2        # share of each node's training data (data.with_validation)
    flip_labels = 5              # number (or list) of nodes with wrong labels (data.flip_labels)
    rotated = [0, 90, 180, 270]  # degrees by which nodes see images rotated (data.rotated)
    tinted = [[1, 0, 0], [0, 1, 0]]    # colors in which nodes see gray images (data.tinted)
    noisy = 0.1                  # variance of the noise in the last node's inputs (data.noisy)
    backdoor = { target = 0, nodes = [3] }    # triggered images (data.backdoor)
    augment = "crop_and_flip,padding=4"    # random crops and flips (data.augmented)

    [topology]                   # topofl.topologies, or a file; n and label counts from the data
    name = "dcliques"
    inter = "ring"

    [algorithm]                  # topofl.algorithms
    name = "dsgd"
    lr = 0.1

    [run]                        # rounds, seed, init, progress of topofl.run
    rounds = 100

    [evaluation]                 # topofl.Evaluation; short: evaluation = 4, or "own_test"
    every = 4

    [compute]                    # topofl.Compute; short: compute = "cpu"
    device = "cpu"

    [saving]                     # topofl.Saving; `topofl run` sets its folder and resume
    every = 50

    [task]                       # topofl.tasks; short: task = "regression"
    name = "classification"      # the default
    scores = ["accuracy", "f1"]

Optional tables are ``[mixing]`` (a weight rule of :mod:`topofl.mixing`), ``[attackers]`` (an attack
of :mod:`topofl.attacks`, or a custom function that returns an Attack) and ``[model]``
(:mod:`topofl.models`), whose sizes default to those of the data. In ``[attackers]``,
``share = 0.2`` and ``seed`` draw the nodes by :func:`topofl.attacks.drawn`. A table may also be one
line of text, as on the command line: ``topology = "ring"``. So may a graph within a table:
``base = "ring"`` or ``base = { name = "ring" }``. A graph may also be the path of a file (GraphML,
GML, edge list, CSV, or a matrix of scipy or numpy): ``topology = "graph.graphml,own_weights=true"``
mixes by the weights of its edges.

Names can refer to custom functions: ``name = "mymodule:dsgt"`` is the function ``dsgt`` of the
module ``mymodule``, which is importable or next to the file: a configuration is code, so read one
that you received before you load it; ``[modules]`` names another folder, as
in ``folder = "lib"``, relative to the file. A name may also be an entry point of an installed
package, in one of the groups ``topofl.algorithms``, ``topofl.topologies`` and ``topofl.data``. Keys
set the arguments of such functions that are numbers, text or lists. The functions of ``also`` in
``[evaluation]`` are named in the same way: ``also = { ensemble = "mymodule:mean" }``.

Arguments of methods that are objects are written as text, as the calls that create them. A clock
may also be a table of its arguments::

    [algorithm]
    name = "ad_psgd"
    lr = 0.1

    [algorithm.clock]
    compute = "exponential(1.0)"
    delay = "lognormal(mean=0.1, sigma=0.5)"
    bandwidth = 1e6

On the command line this is ``--set "algorithm.clock.compute=exponential(1.0)"`` and so on, or, in
one line, ``--set "algorithm=ad_psgd,lr=0.1,clock=Clock(compute=exponential(1.0), delay=0.1)"``. A
synchronous method has a clock if it is wrapped by ``name = "timed"``, whose ``algorithm`` is
another such table, or its line of text: ``algorithm = "dsgd,lr=0.1"`` or, as in Python,
``algorithm = "dsgd(lr=0.1)"``. Compressors and
learning rate schedules are text as well: ``compressor = "top_k(share=0.1)"`` and
``lr = "cosine(0.5, rounds=300)"``. Custom functions can be called, too:
``compressor = "mymodule:half"``. None is written ``"none"`` where it is not the default. Where a
share and a number are both possible, the decimal point decides: ``participation = 1.0`` is all
clients, and ``participation = 1`` is one of them per round.
"""

from topofl.config.experiment import Experiment, build, load, trained_together
from topofl.config.toml import Tables, assign, dumps, override, read

__all__ = [
    "Experiment",
    "Tables",
    "assign",
    "build",
    "dumps",
    "load",
    "override",
    "read",
    "trained_together",
]
