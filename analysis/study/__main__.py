"""``python -m analysis.study``."""

import sys

if __name__ == "__main__":  # not in its processes, which need little of it
    from .command import main

    sys.exit(main())
