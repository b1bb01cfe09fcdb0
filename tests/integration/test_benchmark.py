"""The benchmark itself works: it measures, checks and reports, in small."""

from __future__ import annotations

import json
from pathlib import Path

from tests.blackbox.processes import Process, wait_for


def test_the_benchmark_measures_a_small_run_and_writes_a_table_and_json(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    bench = Process(
        [
            *("-m", "tests.benchmarks.relay", "--quick", "--messages", "2000", "--json", str(results)),
            *("--only", "baseline", "throughput", "memory-empty", "restart"),
        ],
        log=tmp_path / "bench.log",
    )
    try:
        wait_for(lambda: bench.exit_code is not None, 55, bench.output)
    finally:
        bench.close()
    assert bench.exit_code == 0, bench.output()
    document = json.loads(results.read_text())
    assert document["failure"] is None
    assert list(document["results"]) == ["baseline", "throughput", "memory-empty", "restart"]
    throughput = document["results"]["throughput"]
    assert throughput["messages"] == 2000
    assert throughput["repeats"] == 0
    assert throughput["per_s"] > 0
    assert throughput["cpu_us_per_message"].keys() == {"engine", "web", "broker", "producer", "consumer"}
    assert document["results"]["memory-empty"]["engine_rss_mib"] > 10
    assert "ratio to baseline" in bench.output()
