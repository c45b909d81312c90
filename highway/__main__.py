"""``python -m highway`` is the command ``highway``."""

import sys

from highway.cli import main

if __name__ == "__main__":
    sys.exit(main())
