"""A service under SEALIFT_OBSERVE with its sinks up, down and hanging: its answers and its end stay what they were."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sealift.observe.sinks.json_lines import read_json_lines
from sealift.observe.snapshot import merged
from tests.cli.test_profile import ENVIRON, SEALIFT_ONLY, counts, package
from tests.observe.sinks.otlp_receiver import hanging_server, receiver, refusing_url

__all__ = ["package"]  # the fixture

ALL = "sampling=1,duty_cycle=1,budget=0,bursts=0"


def serve(tmp_path: Path, package: Path, settings: str, code: str = SEALIFT_ONLY, calls: int = 60) -> tuple[subprocess.CompletedProcess[str], float]:
    program = tmp_path / "service.py"
    program.write_text(code)
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, program, package, str(calls)], capture_output=True, text=True, timeout=200, env=ENVIRON | {"SEALIFT_OBSERVE": settings}
    )
    return done, time.monotonic() - start


UNTIL_IMPORTED = """
import time
end = time.monotonic() + 60
while "opentelemetry.exporter.otlp.proto.http._log_exporter" not in sys.modules and time.monotonic() < end:
    time.sleep(0.01)
time.sleep(0.5)
"""


@pytest.mark.parametrize("is_short", [False, True])
def test_otlp_from_a_real_process(tmp_path: Path, package: Path, is_short: bool) -> None:
    """A program that ends before the exporter is imported still delivers its operators; its log records it may lose, and says so."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    with receiver() as got:
        done, _ = serve(tmp_path, package, f"{ALL},sink=otlp:{got.url}", SEALIFT_ONLY + ("" if is_short else UNTIL_IMPORTED))
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr == "" or (is_short and "log records are lost" in done.stderr)
    resources = [{a.key: a.value for a in m.resource_metrics[0].resource.attributes} for m in got.metrics]
    assert {r["service.name"].string_value for r in resources} == {"service"}
    assert len({r["service.instance.id"].string_value for r in resources}) == 1
    assert [r["sealift.batch.sequence"].int_value for r in resources][:1] == [0]
    points = [
        p
        for m in got.metrics
        for x in m.resource_metrics[0].scope_metrics[0].metrics
        if x.name == "sealift.operator.duration"
        for p in x.exponential_histogram.data_points
    ]
    kernel = [p for p in points if any(a.key == "sealift.operator" and a.value.string_value == "k0_linear_relu" for a in p.attributes)]
    assert sum(p.count for p in kernel) == 60 == sum(p.zero_count + sum(p.positive.bucket_counts) for p in kernel)


@pytest.mark.parametrize("kind", ["hangs", "refuses"])
def test_a_sink_that_is_down(tmp_path: Path, package: Path, kind: str) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    with hanging_server() as hanging:
        url = hanging if kind == "hangs" else refusing_url()
        done, seconds = serve(tmp_path, package, f"{ALL},sink=otlp:{url},sink=json:{tmp_path}/seen.jsonl")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert f"otlp:{url}: 0 batches written, lost 1 batches with 60 samples" in done.stderr
    assert seconds < 60
    total = merged(read_json_lines(tmp_path / "seen.jsonl"))
    assert total is not None and counts(total) == {"k0_linear_relu": 60}  # the other sink has everything


def test_a_kill_leaves_what_was_written(tmp_path: Path, package: Path) -> None:
    killed = SEALIFT_ONLY + "import os, signal, time\ntime.sleep(2)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    done, _ = serve(tmp_path, package, f"{ALL},interval=0.2,sink=json:{tmp_path}/seen.jsonl", killed)
    assert done.returncode == -signal.SIGKILL
    total = merged(read_json_lines(tmp_path / "seen.jsonl"))
    assert total is not None and counts(total) == {"k0_linear_relu": 60}


def test_an_unwritable_place(tmp_path: Path, package: Path) -> None:
    (tmp_path / "file").write_text("")
    done, _ = serve(tmp_path, package, f"{ALL},sink=json:{tmp_path}/file/seen.jsonl")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "lost 1 batches with 60 samples" in done.stderr and "Traceback" not in done.stderr


def test_a_program_that_changes_its_folder(tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    done, _ = serve(tmp_path, package, f"{ALL},sink=json:seen.jsonl", f"import os\nos.chdir({str(tmp_path / 'elsewhere')!r})\n" + SEALIFT_ONLY)
    assert (done.returncode, done.stderr) == (0, "")
    total = merged(read_json_lines(tmp_path / "seen.jsonl"))
    assert total is not None and counts(total) == {"k0_linear_relu": 60}


STORM = """
import os, sys, numpy, sealift
model = sealift.load(sys.argv[1])
x = numpy.ones((3, 4), numpy.float32)
expected = model(x)
for i in range(int(sys.argv[2])):
    pid = os.fork()
    if pid == 0:
        ok = all((model(x) == expected).all() for _ in range(10))
        sys.exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0, i
print("done")
"""


def test_a_storm_of_forks(tmp_path: Path, package: Path) -> None:
    """Every child answers as before and reports its own ten calls; the parent reports the first one."""
    done, _ = serve(tmp_path, package, f"{ALL},interval=0.05,sink=json:{tmp_path}/{{id}}.jsonl", STORM, 20)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    totals = [merged(read_json_lines(path)) for path in tmp_path.glob("*.jsonl")]
    reported = sorted(counts(t)["k0_linear_relu"] for t in totals if t is not None and t.series)
    assert reported == [1] + [10] * 20
    assert len({t.process.pid for t in totals if t is not None}) == 21
    assert os.getpid() not in {t.process.pid for t in totals if t is not None}


def test_a_program_that_records_itself(tmp_path: Path, package: Path) -> None:
    """Its start and stop neither fail nor end what the environment asked for."""
    itself = "from sealift import observe\nobserve.start(every='burst')\n" + SEALIFT_ONLY.replace("for _", "observe.stop()\nfor _")
    done, _ = serve(tmp_path, package, f"{ALL},sink=json:{tmp_path}/seen.jsonl", itself)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    total = merged(read_json_lines(tmp_path / "seen.jsonl"))
    assert total is not None and counts(total) == {"k0_linear_relu": 60}
