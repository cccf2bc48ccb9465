"""Entry point of ``python -m topofl``, which runs the command ``topofl``."""

import sys

from topofl.cli import main

if __name__ == "__main__":
    sys.exit(main())
