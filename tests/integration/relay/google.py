"""Google's official emulator, where it is installed: it needs gcloud's component and Java."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.blackbox.processes import free_port, wait_for

START_S = 40.0


def emulator_jar() -> Path | None:
    """The emulator's program; None where it cannot be run."""
    gcloud, java = shutil.which("gcloud"), shutil.which("java")
    if gcloud is None or java is None:
        return None
    roots = [Path(gcloud).resolve().parent.parent, Path("/usr/lib/google-cloud-sdk")]
    found = [jar for root in roots for jar in root.glob("platform/pubsub-emulator/lib/cloud-pubsub-emulator-*-all.jar")]
    return found[0] if found else None


@contextmanager
def google_emulator(log: Path) -> Iterator[str]:
    """Runs inside the `with` block; its `host:port`."""
    jar = emulator_jar()
    assert jar is not None
    port = free_port()
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["java", "-jar", str(jar), "--host=127.0.0.1", f"--port={port}"],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_for(lambda: b"Server started" in log.read_bytes(), START_S, lambda: log.read_text()[-2000:])
        yield f"127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
