"""Write an HTML report on graphs: metrics, pictures, spectra, measured and predicted gossip.

``python -m analysis.spectral_report ring:100 exponential:100 "dcliques:100,inter=ring,seed=0" --out
report.html`` is ``topofl spectral SPEC... --html report.html``. The page is a single file and needs
no network.
"""

import sys
from collections.abc import Sequence

from topofl import cli

from .program import parser_of


def main(argv: Sequence[str] | None = None) -> int:
    """Write the report from the command line; returns the exit code."""
    parser = parser_of(
        "spectral_report",
        __doc__,
        out=("report.html", "where to write"),
        data=(str, "'digits' or a folder with MNIST: adds label heterogeneity"),
        seed=(0, "of label shards and measurements"),
        rounds=(int, "rounds of sequences and measurements (default: 100, curves 500)"),
    )
    parser.add_argument("specs", nargs="+", metavar="SPEC", help="a graph: name[:n][,key=value]*")
    options = parser.parse_args(argv)
    words = ["--html", options.out, "--seed", str(options.seed)]
    words += [] if options.rounds is None else ["--rounds", str(options.rounds)]
    words += [] if options.data is None else ["--data", options.data]
    code = cli.main(["spectral", *words, "--", *options.specs])
    if code == 0:
        print(f"wrote {options.out}")
    return code


if __name__ == "__main__":
    sys.exit(main())
