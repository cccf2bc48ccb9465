"""Options of ``topofl study``."""

from typing import Any

from topofl.cli.shared_options import add_json_option, add_verb, path_argument

__all__ = ["add_study"]

_ABOUT = """

CONFIG.toml is a file of topofl run without [topology] and with a table [study]. Correlations need
at least 8 graphs, and several evaluations in the first half of the rounds:

  [data]
  name = "digits"
  n = 20
  seed = 0

  [algorithm]
  name = "dsgd"
  lr = 0.1
  batch_size = 8

  [run]
  rounds = 60
  seed = 0

  [evaluation]    # default: 20 evaluations
  every = 3

  [study]
  graphs = ["ring", "torus", "designed,degree=4"]    # default: the 47 graphs of our study
  partitions = ["shards,per_node=1", "dirichlet_per_client,alpha=0.1"]  # default: of [data]
  algorithms = ["dsgd,batch_size=8", "dsgt,batch_size=8"]               # default: [algorithm]
  seeds = [0, 1, 2]
  rates = [0.05, 0.1, 0.2]    # the best on a random 4-regular graph is used for all graphs;
                              # default: lr of the entry of algorithms, or of [algorithm]

Finished runs are kept and not repeated: the same command continues an interrupted study. They are
stored in the folder runs of --out, which topofl runs lists, with the tracebacks of those that
failed."""


def add_study(verbs: Any) -> None:
    """Add the command ``topofl study``."""
    examples = """
        topofl study study.toml --processes 2 --html study.html
        topofl study study.toml --dry-run
        topofl study "digits 30" --out out/digits-30
        topofl study all --data path/to/data --processes 2
    """
    text = "correlate numbers of graphs, known before training, with how well nodes learn"
    verb = add_verb(verbs, "study", "topofl.cli.study:study", text, examples, _ABOUT)
    help_names = "CONFIG.toml, or scenarios of our study, or 'all' of those whose data are given"
    verb.add_argument("scenarios", nargs="*", metavar="CONFIG.toml", help=help_names)
    verb.add_argument(
        "--data", type=path_argument, metavar="DIR", help="folder of data of our study"
    )
    help_out = "folder of results (default: out/study, or out/study/NAME for NAME.toml)"
    verb.add_argument("--out", type=path_argument, metavar="DIR", help=help_out)
    verb.add_argument(
        "--html", type=path_argument, metavar="FILE", help="also write an interactive page"
    )
    help_graphs = "also fit rivals, on graphs that are kept in this folder"
    verb.add_argument("--graphs", type=path_argument, metavar="DIR", help=help_graphs)
    verb.add_argument(
        "--processes", type=int, default=1, metavar="J", help="processes (default: 1)"
    )
    verb.add_argument(
        "--minutes", type=float, default=float("inf"), metavar="M", help="start no run after M"
    )
    verb.add_argument("--dry-run", action="store_true", help="show the number of runs only")
    add_json_option(verb)
