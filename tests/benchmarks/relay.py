"""The benchmark of one node: `python -m tests.benchmarks.relay [--quick]`.

Broker, node, producer and consumer are processes on this machine; everything that is accepted is synced to disk. The
raw loop through the same broker is measured in the same run, since machines differ and drift.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.benchmarks import measures
from tests.benchmarks.figures import table
from tests.benchmarks.measures import FULL, QUICK, Figures, Measure, Plan, Wrong
from tests.benchmarks.stand import Stand, stand
from tests.benchmarks.worker import WorkerFailed
from tests.blackbox.processes import ProcessFailed

MEASURES: Final[dict[str, Measure]] = {
    "baseline": measures.baseline,
    "throughput": measures.throughput,
    "lateness": measures.lateness,
    "accept": measures.accept,
    "memory-empty": measures.memory,
    "fill": measures.fill,
    "lateness-pending": measures.lateness,
    "throughput-pending": measures.throughput,
    "memory-pending": measures.memory,
    "drain": measures.drain,
    "memory-drained": measures.memory,
    "restart": measures.restart,
    "memory-restarted": measures.memory,
}
"""In the order in which they run: those beside pending messages after `fill`."""

FAILURES: Final = (Wrong, WorkerFailed, ProcessFailed, AssertionError, OSError)
"""What a measure may raise; anything else is a fault of the benchmark."""


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for; 0, or 1 when a measure could not be taken."""
    options = _parser().parse_args(arguments)
    plan = QUICK if options.quick else FULL
    if options.messages:
        plan = dataclasses.replace(plan, throughput=options.messages, drain=options.messages, pending=options.messages)
    chosen = [name for name in MEASURES if not options.only or name in options.only]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began_s = time.monotonic()
    results: dict[str, Figures] = {}
    failure = ""
    try:
        with stand() as bench:
            for name in chosen:
                try:
                    results[name] = _measure(bench, name, plan)
                except FAILURES as error:
                    failure = f"{name}: {error}{bench.deaths()}"
                    break
    except KeyboardInterrupt:
        failure = "interrupted"
    except FAILURES as error:
        failure = str(error)
    _add_ratios(results)
    print(f"\n{table(results)}\n")
    document = {
        **_surroundings(),
        "plan": dataclasses.asdict(plan),
        "took_s": round(time.monotonic() - began_s, 1),
        "failure": failure or None,
        "results": results,
    }
    options.json.write_text(json.dumps(document, indent=2) + "\n")
    print(f"{len(results)} of {len(chosen)} measures in {document['took_s']} s; JSON in {options.json}")
    if failure:
        print(f"The benchmark failed: {failure}", file=sys.stderr)
        return 1
    return 0


def _measure(bench: Stand, name: str, plan: Plan) -> Figures:
    print(f"{name} …", end="", flush=True)
    began_s = time.monotonic()
    figures = MEASURES[name](bench, plan)
    print(f" {time.monotonic() - began_s:.1f} s", flush=True)
    return figures


def _add_ratios(results: dict[str, Figures]) -> None:
    """Beside each throughput its share of the raw loop."""
    raw = results.get("baseline")
    for name in ("throughput", "throughput-pending"):
        if raw and name in results:
            results[name]["ratio_to_baseline"] = results[name]["per_s"] / raw["per_s"]


def _surroundings() -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "kernel": platform.release(),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.relay", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller numbers, at most a minute")
    parser.add_argument("--messages", type=int, metavar="N", help="messages of each measure but the paced ones")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=MEASURES, help=f"of {', '.join(MEASURES)}")
    parser.add_argument(
        "--json", type=Path, default=Path("bench-results.json"), metavar="FILE", help="default %(default)s"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
