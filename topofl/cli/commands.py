"""The commands and their options: what ``topofl COMMAND --help`` says is in these docstrings.

Those that train runs, and compare them, are in :mod:`topofl.cli.commands_of_runs`.
A function declares a command: its parameters are the options, and the section ``Parameters``
describes them, each with the word that stands for its value. Functions of other modules, which
:data:`COMMANDS` names, perform the commands. The parser is made from all this.
"""

import argparse
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NoReturn, get_args, get_origin

import topofl
from topofl._support.text import did_you_mean
from topofl.cli.commands_of_runs import (
    compare,
    leaderboard,
    reproduce,
    resume,
    run,
    runs,
    study,
    sweep,
)

Function = Callable[..., None]

EXIT_CODES = "exit codes: 0 success; 1 the run failed; 2 wrong usage or configuration"
"""Last line of ``topofl --help``; ``docs/command-line.md`` has the details."""

EXCLUSIVE = {
    ("force", "skip_done"): False,
    ("about", "all"): False,
    ("latex", "markdown", "json", "bibtex"): False,
    ("max_degree", "max_messages", "max_bytes"): True,
}
"""Options of which at most one can be given, and whether one has to be."""

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
    name: Annotated[str | None, {"nargs": "?"}] = None,
    needs: bool = False,
) -> None:
    """List the names for specs and configurations, or what one of them takes.

    Parameters
    ----------
    kind : KIND
        list only this kind: %(choices)s
    name : NAME
        print only the parameters of this name, with what they mean, and an example
    needs
        also list what algorithms require of graphs and weights

    Examples
    --------
    topofl list
    topofl list topology
    topofl list topology matcha
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
        a graph: name[:n][,key=value]*[,base=(SPEC)], or a call in quotes, 'name(key=value)'; the
        name may be module:function, or a file (.graphml, .gml, .edgelist, .csv, .npz, .npy)
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


def json_options(json: bool = False) -> None:
    """Options of commands whose result is no table.

    Parameters
    ----------
    json
        print a JSON list with one object per row
    """


def table_options(markdown: bool = False, json: bool = False, csv: Path | None = None) -> None:
    """Options of commands that print a table.

    Parameters
    ----------
    markdown
        print a Markdown table
    json
        print a JSON list with one object per row
    csv : FILE
        also write the table there, in full precision
    """


def data_options(
    data: str | None = None, partition: str | None = None, per_node: int | None = None
) -> None:
    """Options that say which clients a command is about.

    Parameters
    ----------
    data : DATA
        a dataset with its arguments, as digits or cifar10,root=DIR,verify=false, or a folder with
        MNIST in it or below; arguments are the keys of [data]
    partition : PARTITION
        how --data is divided, as dirichlet_per_client,alpha=0.1; see topofl list partition
        (default: shards)
    per_node : K
        shards of sorted data per node (default: 2)
    """


def training_options(
    set: Annotated[Sequence[str], {"action": "append", "nargs": None}] = (),
    log: Path | None = None,
    tensorboard: Path | None = None,
    progress: bool | None = None,
) -> None:
    """Options of commands that train one run.

    Parameters
    ----------
    set : KEY=VALUE
        table.key=value, or table=spec for a whole table; may be repeated
    log : FILE.jsonl
        append one JSON object per event to this file
    tensorboard : DIR
        write scalars for TensorBoard here
    progress
        a bar (default: on terminals)
    """


def trust_options(trust: bool = False) -> None:
    """Options of commands that build something from a stored run, which imports no module without.

    Parameters
    ----------
    trust
        import the functions that the run names as module:function, which runs their code
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
    "leaderboard": ("topofl.cli.programs:leaderboard", leaderboard, json_options),
    "reproduce": ("topofl.cli.programs:reproduce", reproduce, json_options),
    "study": ("topofl.cli.programs:study", study, json_options),
    "doctor": ("topofl.cli.doctor:doctor", doctor, json_options),
    "completion": ("topofl.cli.listing:completion", completion),
}
"""By name: what performs a command, its declaration, and options that it shares with others.

The modules of what performs commands are imported only when they run.
"""


def check_alone(options: argparse.Namespace, *names: str) -> None:
    """Raise ``ValueError`` if the first option and another one are given, which exclude it."""
    if given := [name for name in names[1:] if getattr(options, name)]:
        raise ValueError(
            f"`--{names[0]}` must be given without `--{given[0].replace('_', '-')}`; leave one out"
        )


class Parser(argparse.ArgumentParser):
    """A parser that raises its errors as ``ValueError`` instead of exiting."""

    def parse_known_args(  # type: ignore[override]  # the overloads of argparse
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse arguments; unknown ones are an error of the command that they were given to."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._nearest(unknown)}")
        return options, unknown

    def _nearest(self, unknown: Iterable[str]) -> str:
        """Return a suggestion for the first unknown option that resembles a known one."""
        known = [name for name in self._option_string_actions if name.startswith("--")]
        given = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        return next(filter(None, (did_you_mean(word, known) for word in given)), "")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise if `value` is not one of the choices, suggesting the nearest one."""
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            from topofl._support.plugins import suggestion  # only errors need it

            meant = suggestion(action.dest, str(value), known)
            wanted = f"must be one of {', '.join(known)}, got {value!r}{meant}"
            raise argparse.ArgumentError(action, wanted)

    def error(self, message: str) -> NoReturn:
        """Raise ``ValueError``, with the command whose help describes the arguments."""
        raise ValueError(f"{message} (see {self.prog} --help)")


def path_argument(text: str) -> Path:
    """Return a path; an empty argument, as from an unset shell variable, is rejected."""
    if not text:
        raise argparse.ArgumentTypeError(
            "must be a path, got empty text; the current folder is '.'"
        )
    return Path(text)


def make_parser() -> Parser:
    """Return the parser of all commands, which sets ``command`` to the name of what performs it.

    Parameters of a command's functions are its options: those without a default, and those with
    ``nargs``, are positional. The first function describes it.
    """
    parser = Parser(
        prog="topofl",
        description="Decentralized federated learning over graphs: "
        "compare topologies, train, report.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"topofl {topofl.__version__}")
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (target, *functions) in COMMANDS.items():
        about, _, examples = _sections(functions[0])
        first, *more = about.split("\n\n", 1)
        text = f"{first[:1].lower()}{first[1:].removesuffix('.')}"
        verb = verbs.add_parser(
            name,
            help=text,
            description="\n\n".join([text, *more]),
            epilog=f"{EXIT_CODES}\n\nexamples:\n{textwrap.indent(examples, '  ')}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        verb.set_defaults(command=target)
        _add_options(verb, functions)
    return parser


def _add_options(verb: argparse.ArgumentParser, functions: Sequence[Function]) -> None:
    described = {name: words for one in reversed(functions) for name, *words in _sections(one)[1]}
    groups: dict[tuple[str, ...], Any] = {}
    for option in [one for each in functions for one in signature(each).parameters.values()]:
        name, is_required = option.name, option.default is Parameter.empty
        given = _argument(option.annotation, None if is_required else option.default)
        metavar, given["help"] = described.get(name, ("", None))  # python -OO has no docstrings
        if metavar:
            given["metavar"] = metavar
        if is_required or given.get("nargs") in ("?", "*"):
            verb.add_argument(name, **given)
            continue
        together = next((names for names in EXCLUSIVE if name in names), ())
        if together and together not in groups:
            groups[together] = verb.add_mutually_exclusive_group(required=EXCLUSIVE[together])
        groups.get(together, verb).add_argument(f"--{name.replace('_', '-')}", **given)


def _sections(command: Function) -> tuple[str, list[tuple[str, str, str]], str]:
    """Return description, parameters (name, metavar and help) and examples of a docstring."""
    text = cleandoc(command.__doc__ or "")
    about, _, rest = text.partition("\n\nParameters\n----------\n")
    parameters, _, examples = rest.partition("\n\nExamples\n--------\n")
    found = re.findall(r"^(\w+)(?: : (.+))?\n((?:    .+\n?)+)", parameters, re.MULTILINE)
    helps = [
        (name, word, " ".join(help.split()).replace("% ", "%% ")) for name, word, help in found
    ]
    return about, helps, examples


def _argument(annotation: Any, default: Any) -> dict[str, Any]:
    """Return the arguments of ``add_argument`` for the type and the default of an option."""
    more: dict[str, Any] = {}
    if get_origin(annotation) is Annotated:
        annotation, more = get_args(annotation)
    alternatives = get_args(annotation) if NoneType in get_args(annotation) else [annotation]
    kind = alternatives[0]
    given: dict[str, Any] = {"default": default}
    if get_origin(kind) is Sequence:
        (kind,) = get_args(kind)
        own = None if default is None else list(default)
        given = {"nargs": "+", "action": "extend", "default": own}
    if kind is bool:
        is_open = NoneType in alternatives
        given["action"] = argparse.BooleanOptionalAction if is_open else "store_true"
    elif get_origin(kind) is Literal:
        given["choices"] = get_args(kind)
    elif kind is not str:
        given["type"] = path_argument if kind is Path else kind
    return given | more
