"""Write an HTML report on graphs: metrics, pictures, spectra, measured and predicted gossip.

``python -m analysis.spectral_report ring:100 exponential:100 "dcliques:100,inter=ring,seed=0" --out
report.html`` is ``topofl spectral SPEC... --html report.html``. The page is a single file and needs
no network.
"""

import argparse
import sys
from collections.abc import Sequence

from topofl import cli

from .program import as_installed


def main(argv: Sequence[str] | None = None) -> int:
    """Write the report from the command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog=as_installed("python -m analysis.spectral_report"), description=as_installed(__doc__)
    )
    parser.add_argument("specs", nargs="+", metavar="SPEC", help="a graph: name[:n][,key=value]*")
    parser.add_argument(
        "--out", default="report.html", metavar="FILE", help="where to write (default report.html)"
    )
    parser.add_argument("--data", help="'digits' or a folder with MNIST: adds label heterogeneity")
    parser.add_argument(
        "--seed", type=int, default=0, help="of label shards and measurements (default: 0)"
    )
    parser.add_argument(
        "--rounds", type=int, help="rounds of sequences and measurements (default: 100, curves 500)"
    )
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
