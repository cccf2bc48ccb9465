"""The commands and their options: what ``topofl COMMAND --help`` says is in these docstrings.

Those that train runs, and compare them, are in :mod:`topofl.cli.commands_of_runs`.
A function declares a command: its parameters are the options, and the section ``Parameters``
describes them, each with the word that stands for its value. Functions of other modules, which
:data:`COMMANDS` names, perform the commands.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from topofl.cli.commands_of_runs import compare, reproduce, resume, run, runs, study, sweep
from topofl.cli.options import (
    Function,
    Parser,
    data_options,
    json_options,
    parser_of,
    table_options,
    training_options,
    trust_options,
)

KINDS_OF_NAMES = (
    "topology", "algorithm", "model", "dataset", "partition", "augmentation", "mixing", "task",
    "attack", "clock", "compressor", "schedule", "metric",
)  # fmt: skip
"""What ``topofl list`` lists: the kinds of the catalogue of specs, and columns of metrics."""


def new(
    file: Annotated[Path, {"nargs": "?"}] = Path("experiment.toml"), force: bool = False
) -> None:
    """Write a commented experiment.toml that topofl run accepts as it is.

    Parameters
    ----------
    file : FILE
        the file to write (default: experiment.toml)
    force
        overwrite an existing file

    Examples
    --------
    topofl new
    topofl new ring.toml
    topofl new experiment.toml --force
    """


def list_names(
    kind: Annotated[str | None, {"nargs": "?", "choices": KINDS_OF_NAMES}] = None,
    needs: bool = False,
) -> None:
    """List the names for specs and configurations.

    Parameters
    ----------
    kind : KIND
        list only this kind: %(choices)s
    needs
        also list what algorithms require of graphs and weights

    Examples
    --------
    topofl list
    topofl list topology
    topofl list algorithm --needs
    topofl list topology --json
    """


def spectral(
    specs: Sequence[str],
    seed: int = 0,
    rounds: int | None = None,
    metrics: str | None = None,
    weights: str | None = None,
    html: Path | None = None,
    about: str | None = None,
    all: bool = False,
) -> None:
    """Compare graphs before training.

    Parameters
    ----------
    specs : SPEC
        a graph: name[:n][,key=value]*[,base=(SPEC)]; the name may be module:function, or a file
        (.graphml, .gml, .edgelist, .csv, .npz, .npy)
    seed
        seed of clients and measurements (default: 0)
    rounds : R
        rounds to measure (default: 100, and 500 for the curves of a page)
    metrics : NAMES
        more columns, separated by commas: module:function or names from topofl list metric
    weights : RULE
        rule that computes mixing weights, one of topofl list mixing or module:function (default:
        the graph's own, Metropolis-Hastings if it is undirected, or uniform)
    html : FILE
        also write a page: numbers, pictures, measurements
    about : GROUPS
        which columns, separated by commas: structure, paths, averaging, rounds, push-sum, data,
        cost (default: those that decide printed, and all in files and JSON)
    all
        print all columns

    Examples
    --------
    topofl spectral ring:100 exponential:100 "dcliques:100,inter=ring,seed=0"
    topofl spectral ring:100 dcliques:100,seed=0 --data digits --per-node 2 --all
    topofl spectral ring:100 --data digits --partition dirichlet_per_client,alpha=0.1
    topofl spectral random_regular:64,k=4,seed=1 --csv graphs.csv
    topofl spectral "link_failures,base=(torus:100),fail=0.1,recover=0.5,seed=0"
    topofl spectral graph.graphml graph.graphml,own_weights=true
    topofl spectral graph.edgelist --weights weighted_metropolis
    topofl spectral "mygraphs:wheel,n=100" --metrics mygraphs:mean_weight
    topofl spectral ring:100 exponential:100 --html report.html
    """


def recommend(
    config: Annotated[Path | None, {"nargs": "?"}] = None,
    n: int | None = None,
    max_degree: int | None = None,
    max_messages: int | None = None,
    max_bytes: int | None = None,
    directed: bool = False,
    static: bool = False,
    lr: float | None = None,
    rounds: int | None = None,
    batch_size: int | None = None,
    hops: int | None = None,
    seed: int = 0,
    plot: Path | None = None,
) -> None:
    """Recommend topologies for given data and a communication budget.

    Parameters
    ----------
    config : CONFIG.toml
        an experiment: its data, model, learning rate, batch size and rounds
    n : N
        number of nodes, with --data
    max_degree : D
        most messages that a node sends, and that it receives, per round
    max_messages : M
        most messages of all nodes per round
    max_bytes : B
        most bytes of all nodes per round (with --data: of logistic regression)
    directed
        allow directed graphs, too
    static
        leave out time-varying graphs
    lr : LR
        learning rate of the training
    rounds : R
        rounds of the training
    batch_size : B
        examples per minibatch, with which gradient noise is measured
    hops : K
        rounds of averaging that H_K and N_K count: 10 or 20 (default: by --lr, or 10)
    seed
        seed of data and graphs (default: 0)
    plot : FILE
        draw predicted rounds (.png, .pdf, .svg)

    Examples
    --------
    topofl recommend --data digits --n 60 --per-node 2 --max-degree 6
    topofl recommend --data digits --n 60 --max-messages 240 --directed --static
    topofl recommend --data digits --partition one_class_per_node --n 60 --max-degree 6
    topofl recommend experiment.toml --max-degree 4 --plot rounds.png
    """


def explore(data: Path | None = None, port: int = 0, no_browser: bool = False) -> None:
    """Compare two topologies in a browser, with widgets (extra: explore).

    The page shows both graphs, label energy in their spectra, costs and predicted rounds, trains on
    both, and has the Python code that does the same. It offers the embedded digits and the datasets
    in --data, or in $TOPOFL_DATA, or in data/ and ../shared/data; nothing is downloaded. It is
    served on 127.0.0.1 only, until Ctrl-C.

    Parameters
    ----------
    data : DIR
        folder that contains datasets, directly or in subfolders
    port : P
        port on 127.0.0.1 (default: a free one)
    no_browser
        only print the address; do not open a browser

    Examples
    --------
    topofl explore
    topofl explore --data path/to/data
    topofl explore --port 8700 --no-browser
    """


def graphs(
    folder: Path,
    every: int = 1,
    labels: bool = False,
    html: Path | None = None,
    about: str | None = None,
) -> None:
    """Show which nodes received from which in a saved run, per round, such as learned graphs.

    Parameters
    ----------
    folder : RUN
        a folder that run (or History.save) wrote
    every : K
        every K-th round and the last (default: all)
    labels
        also read the data of the run: adds columns on labels, and orders nodes by them
    html : FILE
        also write a page: a picture with a slider, curves
    about : GROUPS
        which columns, separated by commas: structure, paths, averaging, rounds, push-sum, data,
        cost (default: structure, averaging, data)

    Examples
    --------
    topofl graphs runs/dpfl
    topofl graphs runs/dpfl --labels --html graphs.html
    topofl graphs runs/dpfl --every 10 --about structure --csv graphs.csv
    """


def doctor(
    data: Path | None = None,
    out: Path = Path("runs"),
    model: str | None = None,
    shape: str | None = None,
) -> None:
    """Check the installation, and report what a bug report needs.

    The checks: versions of Python, topofl and the packages it needs; devices; datasets in --data,
    or in $TOPOFL_DATA, or in data/ and ../shared/data; whether runs can be saved; and two seconds
    of training on embedded data, compared with numpy. If something is wrong, the exit code is 1.
    With --model, it says instead how runs train a network: each layer, and the whole of it.

    Parameters
    ----------
    data : DIR
        folder that contains datasets, directly or in subfolders
    out : DIR
        folder in which runs are to be saved (default: runs)
    model : MODEL
        a network as module:function, or a name of topofl list model, with its arguments
    shape : SIZES
        shape of an example of --model, as 3,32,32 (default: one that its first layer takes)

    Examples
    --------
    topofl doctor
    topofl doctor --data path/to/data
    topofl doctor --json
    topofl doctor --model mynets:Net --shape 3,32,32
    """


def completion(shell: Literal["bash", "zsh"]) -> None:
    """Print a script that completes commands, options, names and paths in a shell.

    For bash, with the package bash-completion:
      topofl completion bash > ~/.local/share/bash-completion/completions/topofl
    For zsh, with a folder of fpath, before compinit in ~/.zshrc:
      topofl completion zsh > ~/.zsh/completions/_topofl

    Parameters
    ----------
    shell
        the shell that reads the script

    Examples
    --------
    topofl completion bash
    topofl completion zsh
    """


COMMANDS: dict[str, tuple[str, *tuple[Function, ...]]] = {
    "new": ("topofl.cli.programs:new", new),
    "list": ("topofl.cli.listing:list_names", list_names, json_options),
    "spectral": ("topofl.cli.graphs:spectral", spectral, data_options, table_options),
    "recommend": ("topofl.cli.graphs:recommend", recommend, data_options, table_options),
    "explore": ("topofl.cli.programs:explore", explore),
    "run": ("topofl.cli.run:run", run, training_options, json_options),
    "resume": ("topofl.cli.run:resume", resume, training_options, json_options, trust_options),
    "sweep": ("topofl.cli.programs:sweep", sweep, table_options),
    "runs": ("topofl.cli.runs:runs", runs, table_options),
    "compare": ("topofl.cli.compare:compare", compare, table_options),
    "graphs": ("topofl.cli.graphs:graphs", graphs, trust_options, table_options),
    "reproduce": ("topofl.cli.programs:reproduce", reproduce, json_options),
    "study": ("topofl.cli.programs:study", study, json_options),
    "doctor": ("topofl.cli.doctor:doctor", doctor, json_options),
    "completion": ("topofl.cli.listing:completion", completion),
}
"""By name: what performs a command, its declaration, and options that it shares with others.

The modules of what performs commands are imported only when they run.
"""


def make_parser() -> Parser:
    """Return the parser of all commands, which sets ``command`` to the name of what performs it."""
    return parser_of(COMMANDS)
