"""``python -m analysis.same_as_before``."""

import sys

if __name__ == "__main__":
    from .command import main

    sys.exit(main())
