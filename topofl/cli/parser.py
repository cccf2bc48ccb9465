"""Parser of the command line. Modules of the commands are imported only when they run."""

import argparse
from pathlib import Path
from typing import Any

import topofl
from topofl._support.suffixes import KINDS
from topofl.cli.compare_options import add_compare
from topofl.cli.declared import KINDS_OF_NAMES
from topofl.cli.parsing import Parser
from topofl.cli.run_options import add_resume, add_run
from topofl.cli.setup_options import add_completion, add_doctor, add_explore, add_new
from topofl.cli.shared_options import (
    EXIT_CODES,
    add_data_options,
    add_json_option,
    add_report_options,
    add_table_options,
    add_trust_option,
    add_verb,
    path_argument,
)
from topofl.cli.study_options import add_study
from topofl.cli.sweep_options import add_runs, add_sweep

__all__ = ["make_parser"]


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands, which sets ``command`` to ``module:function``."""
    parser = Parser(
        prog="topofl",
        description="Decentralized federated learning over graphs: "
        "compare topologies, train, report.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"topofl {topofl.__version__}")
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)
    for add in (
        add_new,
        _add_list,
        _add_spectral,
        _add_recommend,
        add_explore,
        add_run,
        add_resume,
        add_sweep,
        add_runs,
        add_compare,
        _add_graphs,
        _add_reproduce,
        add_study,
        add_doctor,
        add_completion,
    ):
        add(verbs)
    return parser


def _add_list(verbs: Any) -> None:
    examples = """
        topofl list
        topofl list topology
        topofl list algorithm --needs
        topofl list topology --json
    """
    verb = add_verb(
        verbs,
        "list",
        "topofl.cli.listing:list_names",
        "list the names for specs and configurations",
        examples,
    )
    help_kind = f"list only this kind: {', '.join(KINDS_OF_NAMES)}"
    verb.add_argument("kind", nargs="?", choices=KINDS_OF_NAMES, metavar="KIND", help=help_kind)
    verb.add_argument(
        "--needs",
        action="store_true",
        help="also list what algorithms require of graphs and weights",
    )
    add_json_option(verb)


def _add_spectral(verbs: Any) -> None:
    examples = """
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
    text = "compare graphs before training"
    verb = add_verb(verbs, "spectral", "topofl.cli.spectral:spectral", text, examples)
    files = ", ".join(KINDS)
    help_specs = (
        "a graph: name[:n][,key=value]*[,base=(SPEC)]; the name may be module:function, or a file "
        f"({files})"
    )
    verb.add_argument("specs", nargs="+", metavar="SPEC", help=help_specs)
    add_data_options(verb)
    verb.add_argument(
        "--seed", type=int, default=0, help="seed of clients and measurements (default: 0)"
    )
    help_rounds = "rounds to measure (default: 100, and 500 for the curves of a page)"
    verb.add_argument("--rounds", type=int, metavar="R", help=help_rounds)
    help_metrics = (
        "more columns, separated by commas: module:function or names from topofl list metric"
    )
    verb.add_argument("--metrics", metavar="NAMES", help=help_metrics)
    help_weights = (
        "rule that computes mixing weights, one of topofl list mixing or module:function (default: "
        "the graph's own, Metropolis-Hastings if it is undirected, or uniform)"
    )
    verb.add_argument("--weights", metavar="RULE", help=help_weights)
    default = "those that decide printed, and all in files and JSON"
    which = add_report_options(verb, "numbers, pictures, measurements", default)
    which.add_argument("--all", action="store_true", help="print all columns")
    add_table_options(verb)


def _add_recommend(verbs: Any) -> None:
    examples = """
        topofl recommend --data digits --n 60 --per-node 2 --max-degree 6
        topofl recommend --data digits --n 60 --max-messages 240 --directed --static
        topofl recommend --data digits --partition one_class_per_node --n 60 --max-degree 6
        topofl recommend experiment.toml --max-degree 4 --plot rounds.png
    """
    text = "recommend topologies for given data and a communication budget"
    verb = add_verb(verbs, "recommend", "topofl.cli.recommend:recommend", text, examples)
    help_config = "an experiment: its data, model, learning rate, batch size and rounds"
    verb.add_argument(
        "config", nargs="?", type=path_argument, metavar="CONFIG.toml", help=help_config
    )
    add_data_options(verb)
    verb.add_argument("--n", type=int, metavar="N", help="number of nodes, with --data")
    budget = verb.add_mutually_exclusive_group(required=True)
    help_degree = "most messages that a node sends, and that it receives, per round"
    budget.add_argument("--max-degree", type=int, metavar="D", help=help_degree)
    help_all = "most {} of all nodes per round{}"
    text = help_all.format("messages", "")
    budget.add_argument("--max-messages", type=int, metavar="M", help=text)
    text = help_all.format("bytes", " (with --data: of logistic regression)")
    budget.add_argument("--max-bytes", type=int, metavar="B", help=text)
    verb.add_argument("--directed", action="store_true", help="allow directed graphs, too")
    verb.add_argument("--static", action="store_true", help="leave out time-varying graphs")
    verb.add_argument("--lr", type=float, metavar="LR", help="learning rate of the training")
    verb.add_argument("--rounds", type=int, metavar="R", help="rounds of the training")
    help_batch = "examples per minibatch, with which gradient noise is measured"
    verb.add_argument("--batch-size", type=int, metavar="B", help=help_batch)
    help_hops = "rounds of averaging that H_K and N_K count: 10 or 20 (default: by --lr, or 10)"
    verb.add_argument("--hops", type=int, metavar="K", help=help_hops)
    verb.add_argument("--seed", type=int, default=0, help="seed of data and graphs (default: 0)")
    help_plot = "draw predicted rounds (.png, .pdf, .svg)"
    verb.add_argument("--plot", type=path_argument, metavar="FILE", help=help_plot)
    add_table_options(verb)


def _add_graphs(verbs: Any) -> None:
    examples = """
        topofl graphs runs/dpfl
        topofl graphs runs/dpfl --labels --html graphs.html
        topofl graphs runs/dpfl --every 10 --about structure --csv graphs.csv
    """
    text = "show which nodes received from which in a saved run, per round, such as learned graphs"
    verb = add_verb(verbs, "graphs", "topofl.cli.graphs:graphs", text, examples)
    verb.add_argument(
        "folder",
        type=path_argument,
        metavar="RUN",
        help="a folder that run (or History.save) wrote",
    )
    verb.add_argument(
        "--every",
        type=int,
        default=1,
        metavar="K",
        help="every K-th round and the last (default: all)",
    )
    help_labels = "also read the data of the run: adds columns on labels, and orders nodes by them"
    verb.add_argument("--labels", action="store_true", help=help_labels)
    add_trust_option(verb)
    add_report_options(verb, "a picture with a slider, curves", "structure, averaging, data")
    add_table_options(verb)


def _add_reproduce(verbs: Any) -> None:
    examples = """
        topofl reproduce --list
        topofl reproduce dcliques-fig09 --scale smoke
        topofl reproduce dcliques-fig09 --scale paper --data path/to/data --seeds 5
        topofl reproduce dcliques --scale quick --data path/to/data --jobs 2 --report
        topofl reproduce dcliques --scale quick --data path/to/data --dry-run
    """
    text = "regenerate figures of the papers and check the papers' claims about them"
    verb = add_verb(verbs, "reproduce", "topofl.cli.reproduce:reproduce", text, examples)
    verb.add_argument(
        "name", nargs="?", metavar="FIGURE", help="a figure, or a paper for all of its figures"
    )
    verb.add_argument(
        "--list",
        action="store_true",
        help="list papers, figures, and figures that are missing, and exit",
    )
    scales = (
        "smoke (seconds, no files), quick (default; minutes a figure and hours a paper on 2 cores) "
        "or paper; see --dry-run"
    )
    verb.add_argument("--scale", default="quick", metavar="SCALE", help=scales)
    verb.add_argument(
        "--seeds",
        type=int,
        metavar="K",
        help="runs of every arm (default: 1 to 5, by paper and scale)",
    )
    _add_execution_options(verb)


def _add_execution_options(verb: argparse.ArgumentParser) -> None:
    """Add the options of ``reproduce`` on data, folders and hardware."""
    verb.add_argument(
        "--data",
        type=path_argument,
        metavar="DIR",
        help="folder that contains MNIST and CIFAR-10, or the parent of one (default: "
        "$TOPOFL_DATA)",
    )
    verb.add_argument(
        "--datasets", metavar="NAMES", help="use only these: mnist, cifar10, or both with a comma"
    )
    help_out = "folder of results (default: out/reproduce); its finished runs are not repeated"
    verb.add_argument(
        "--out", type=path_argument, default=Path("out/reproduce"), metavar="DIR", help=help_out
    )
    help_kept = (
        "folder with the JSON files of an earlier report; its unchanged runs are not repeated"
    )
    verb.add_argument("--kept", type=path_argument, metavar="DIR", help=help_kept)
    verb.add_argument(
        "--device", metavar="D", help="cpu, cuda, cuda:1 (default: CUDA if there is one)"
    )
    verb.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="J",
        help="processes, sharing the CPU cores (default: 1)",
    )
    verb.add_argument(
        "--dry-run",
        action="store_true",
        help="show runs, time and memory (from probes); keep nothing",
    )
    verb.add_argument(
        "--report",
        action="store_true",
        help="also write one page with everything: HTML and Markdown",
    )
    add_json_option(verb)
