"""How the program of each language is built: away from the checkout, with the versions that its lock file names."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
BUILD_S: Final = 600.0

SEARCHED: Final = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/go/bin"])
"""Go's own installer leaves it to the user to add its directory."""


class BuildFailed(Exception):
    """A build ended with an error; the message is the end of its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """One language: what must be installed, what builds its program, and what starts it in the built directory."""

    name: str
    programs: tuple[str, ...]
    build: tuple[tuple[str, ...], ...]
    start: tuple[str, ...]

    def missing(self) -> list[str]:
        """The programs that are not installed."""
        return [program for program in self.programs if shutil.which(program, path=SEARCHED) is None]

    def prepare(self, directory: Path) -> Path:
        """Copy the program below `directory` and build it there; BuildFailed. Downloads go to the tools' own caches."""
        built = directory / self.name
        shutil.copytree(HERE / self.name, built)
        for command in self.build:
            ended = subprocess.run(
                located(command), cwd=built, timeout=BUILD_S, capture_output=True, text=True, check=False
            )
            if ended.returncode != 0:
                raise BuildFailed(f"{' '.join(command)}: {(ended.stdout + ended.stderr)[-2000:]}")
        return built


def located(command: Sequence[str]) -> list[str]:
    """The command with its program's full path, so that it is found wherever `missing` found it."""
    return [shutil.which(command[0], path=SEARCHED) or command[0], *command[1:]]


TOOLCHAINS: Final = (
    Toolchain(name="go", programs=("go",), build=(("go", "build", "-o", "clients", "."),), start=("./clients",)),
    Toolchain(
        name="node",
        programs=("node", "npm"),
        build=(("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"),),
        start=("node", "main.mjs"),
    ),
    Toolchain(
        name="java",
        programs=("java", "javac", "mvn"),
        build=(("mvn", "--batch-mode", "--quiet", "process-classes"),),
        start=("java", "-cp", "target/classes:target/dependency/*", "clients.Main"),
    ),
)
