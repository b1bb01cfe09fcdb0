"""`python -m engine.emulator`: the local Pub/Sub as a process of its own."""

from __future__ import annotations

import argparse
import logging
import sys

from engine.emulator.clock import ManualClock
from engine.emulator.server import serve


def main() -> int:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m engine.emulator", description="The local Pub/Sub.")
    parser.add_argument("--host-port", default="127.0.0.1:8085", help="where to listen; port 0 takes a free one")
    parser.add_argument(
        "--manual-clock", action="store_true", help="time stands still until the control service moves it"
    )
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    return serve(options.host_port, ManualClock() if options.manual_clock else None)


if __name__ == "__main__":
    sys.exit(main())
