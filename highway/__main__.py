"""``python -m highway`` is the command ``highway``."""

import sys

from highway.process import interrupt


def main() -> int:
    """Run the command line and return the exit code."""
    interrupt.begin_program()
    from highway import cli  # imported here, because this import takes a while

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
