"""Google's Go, Node and Java libraries, unmodified, against the local Pub/Sub and through a running relay.

`make clients`, or `python -m tests.clients.run go node` for some of them. Each language has a small program with the
same cases, built from pinned versions; what is not installed is skipped and said so. A line for each case: PASS, FAIL
with the reason, or SKIP. Ends with 1 when anything failed. Needs the languages' package registries for what their
caches do not have, so it is no part of `make test`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from engine.emulator.control_client import ControlClient
from tests.blackbox.node import NodeProcess
from tests.blackbox.processes import clean_environment, start_broker, wait_for
from tests.clients.toolchains import TOOLCHAINS, BuildFailed, Toolchain, located

CASES: Final = (
    "resources",
    "missing",
    "plain",
    "large",
    "nack",
    "ordering",
    "filter",
    "dead_letter",
    "exactly_once",
    "recycling",
    "seek",
    "detach",
    "lease",
    "relay",
    "idle",
)
"""What every program must report; the runner adds `nothing_left`."""

PROGRAM_S: Final = 300.0
SETTLED_S: Final = 15.0


@dataclass(slots=True, kw_only=True)
class Results:
    """What was reported, printed as it comes."""

    failed: int = 0
    seen: set[str] = field(default_factory=set)

    def add(self, client: str, verdict: str, case: str, why: str = "") -> None:
        """One line."""
        self.failed += verdict == "FAIL"
        self.seen.add(f"{client} {case}")
        print(f"{verdict} {client} {case}{f': {why}' if why else ''}", flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A broker, a node, and what the broker can be told to do."""

    broker: str
    control: ControlClient
    node: NodeProcess

    def relay_for(self, client: str) -> tuple[str, str]:
        """A channel in the client's project; the topic to publish to and the subscription to receive from."""
        project = f"clients-{client}"
        for topic in ("relay-in", "relay-out"):
            self.control.create_topic(project, topic)
            self.control.create_subscription(project, topic, topic)
        config = {"project_id": project}
        document = {
            "id": client,
            "source": {"driver": "pubsub", "config": {**config, "subscription_id": "relay-in"}},
            "destination": {"driver": "pubsub", "config": {**config, "topic_id": "relay-out"}},
        }
        self.node.rest.post("/channels", document).ok(201)
        wait_for(lambda: self.node.channel(client)["state"] == "active", SETTLED_S, f"channel {client} is active")
        return "relay-in", "relay-out"


@contextmanager
def running(directory: Path) -> Iterator[Site]:
    """The broker and a node inside the `with` block."""
    with ExitStack() as stack:
        process, address = start_broker(directory / "broker.log")
        stack.callback(process.close)
        control = stack.enter_context(ControlClient(address))
        node = NodeProcess(directory / "relay", address)
        stack.callback(node.close)
        node.start()
        yield Site(broker=address, control=control, node=node)


def run(toolchain: Toolchain, site: Site, directory: Path, results: Results) -> None:
    """Build and run one program, serving its wishes, and check that it left nothing behind."""
    name = toolchain.name
    try:
        built = toolchain.prepare(directory)
    except BuildFailed as error:
        results.add(name, "FAIL", "build", str(error))
        return
    relay_in, relay_out = site.relay_for(name)
    log = directory / f"{name}.log"
    with log.open("wb") as errors:
        program = subprocess.Popen(
            [*located(toolchain.start), f"clients-{name}", relay_in, relay_out],
            cwd=built,
            env=clean_environment({"PUBSUB_EMULATOR_HOST": site.broker}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        too_long = threading.Timer(PROGRAM_S, program.kill)
        too_long.start()
        try:
            for line in program.stdout or ():
                _serve(name, line.rstrip("\n"), site, results)
        finally:
            too_long.cancel()
            program.kill()
            program.wait()
    unreported = [case for case in CASES if f"{name} {case}" not in results.seen]
    for case in unreported:
        results.add(name, "FAIL", case, "the program ended without it")
    if unreported:
        print(log.read_text(errors="replace")[-2000:])
    _nothing_left(name, site, results)


def _serve(client: str, line: str, site: Site, results: Results) -> None:
    """Take one line of a program's output."""
    word, _, rest = line.partition(" ")
    if word == "RECYCLE":
        site.control.faults.end_streams(subscription=rest)
    elif word in ("PASS", "FAIL"):
        case, _, why = rest.partition(": ")
        results.add(client, word, case, why)
    else:
        print(line)


def _nothing_left(client: str, site: Site, results: Results) -> None:
    """Every message that the program did not deliberately leave has been acked: no subscription holds any."""

    def held() -> int:
        return site.control.counters()["backlog"]

    try:
        wait_for(lambda: held() == 0, SETTLED_S, lambda: f"{held()} messages are still held")
    except AssertionError as error:
        results.add(client, "FAIL", "nothing_left", str(error))
    else:
        results.add(client, "PASS", "nothing_left")


def main() -> int:
    """Run the chosen clients one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients.run", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("client", nargs="*", help="which ones, of " + ", ".join(t.name for t in TOOLCHAINS))
    chosen = parser.parse_args().client
    unknown = set(chosen) - {toolchain.name for toolchain in TOOLCHAINS}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    results = Results()
    with tempfile.TemporaryDirectory(prefix="clients-") as name, running(Path(name)) as site:
        for toolchain in TOOLCHAINS:
            if chosen and toolchain.name not in chosen:
                continue
            if missing := toolchain.missing():
                results.add(toolchain.name, "SKIP", "all", f"{', '.join(missing)} is not installed")
                continue
            run(toolchain, site, Path(name), results)
    print(f"{results.failed} failed" if results.failed else "nothing failed")
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main())
