"""``python -m highway`` is the command ``highway``."""

import sys

from highway import interrupt


def main() -> int:
    """Run the command line and return the exit code."""
    interrupt.leave_quietly()
    from highway import cli  # here, since it takes a while

    try:
        interrupt.raise_again()
        return cli.main()
    except KeyboardInterrupt:
        return interrupt.CODE
    finally:
        interrupt.leave_quietly()


if __name__ == "__main__":
    sys.exit(main())
