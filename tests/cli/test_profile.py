"""`sealift profile` and SEALIFT_OBSERVE on real programs: sealift models, PyTorch, both, children, signals, exit codes."""

from __future__ import annotations

import errno
import json
import os
import signal
import site
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sealift.cli.main import main
from sealift.observe.sinks.json_lines import read_json_lines
from sealift.observe.snapshot import Snapshot, merged

ROOT = Path(__file__).parents[2]
ENVIRON = {k: v for k, v in os.environ.items() if k != "SEALIFT_OBSERVE"} | {"OMP_NUM_THREADS": "1", "TMPDIR": "/tmp"}

pytestmark = pytest.mark.skipif(
    not any((Path(p) / "sealift_observe.pth").exists() for p in (*site.getsitepackages(), *sys.path)),
    reason="sealift is not installed, so nothing starts with Python",
)


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One kernel, k0_linear_relu: 3 outputs of 4 inputs."""
    torch = pytest.importorskip("torch")
    sealift = pytest.importorskip("sealift")
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
    program = torch.export.export(model, (torch.ones(2, 4),), dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=1024)},))
    path = sealift.compile(program, tmp_path_factory.mktemp("packages") / "small.pt2", name="small")
    assert isinstance(path, Path)
    return path


SEALIFT_ONLY = """
import sys, numpy, sealift
model = sealift.load(sys.argv[1])
for _ in range(int(sys.argv[2])):
    model(numpy.ones((3, 4), numpy.float32))
assert "torch" not in sys.modules
print("done")
"""


def profile(*words: str | Path, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "sealift", "profile", *map(str, words)], capture_output=True, text=True, timeout=300, env=ENVIRON, **options
    )
    if check:
        assert done.returncode == 0, done.stderr
    return done


def profiled(*words: str | Path) -> tuple[dict[str, Any], Snapshot]:
    answer = json.loads(profile("--json", *words).stdout)
    return answer, Snapshot.from_dict(answer["profile"])


def counts(snapshot: Snapshot) -> dict[str, int]:
    out: dict[str, int] = {}
    for s in snapshot.series:
        out[s.operator] = out.get(s.operator, 0) + s.count
    return out


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Any]:
    def write(text: str, name: str = "program.py") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    yield write


def test_a_program_with_a_sealift_model_alone(script: Any, package: Path) -> None:
    answer, snapshot = profiled(script(SEALIFT_ONLY), package, "200")
    kernel = next(s for s in snapshot.series if s.operator == "k0_linear_relu")
    assert (kernel.count, kernel.source, kernel.scope) == (200, "sealift", "kernel")
    assert kernel.origin.startswith("aten.linear.default, aten.relu.default @ ")
    assert answer["exit_code"] == 0 and len(answer["processes"]) == 1


CHILDREN = """
import multiprocessing, os, subprocess, sys
import numpy, sealift

def work(path, times):
    model = sealift.load(path)
    for _ in range(times):
        model(numpy.ones((3, 4), numpy.float32))

if __name__ == "__main__":
    path = sys.argv[1]
    work(path, 5)
    for method, times in (("fork", 10), ("spawn", 20)):
        child = multiprocessing.get_context(method).Process(target=work, args=(path, times))
        child.start()
        child.join()
        assert child.exitcode == 0
    subprocess.run([sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv[1]); from program import work; work(sys.argv[2], 40)", os.path.dirname(__file__), path], check=True)
    pid = os.fork()
    if pid == 0:
        work(path, 80)
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""


def test_children_report_for_themselves(script: Any, package: Path) -> None:
    answer, snapshot = profiled(script(CHILDREN), package)
    assert sorted(p["samples"] for p in answer["processes"]) == [5, 10, 20, 40, 80]
    assert len({p["start_id"] for p in answer["processes"]}) == len({p["pid"] for p in answer["processes"]}) == 5
    assert counts(snapshot)["k0_linear_relu"] == 155


def test_the_table_and_the_files(script: Any, package: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = profile("--out", out, "--", script(SEALIFT_ONLY), package, "300")
    assert done.stdout == "done\n"  # the program's, and nothing else
    lines = done.stderr.splitlines()
    assert "1 process, 300 samples" in lines[0]
    row = next(line for line in lines if line.startswith("k0_linear_relu"))
    assert row.split()[1] == "300" and "aten.linear.default, aten.relu.default @ " in row
    summary = Snapshot.from_dict(json.loads((out / "summary.json").read_text()))
    assert counts(summary) == {"k0_linear_relu": 300}
    total = merged(read_json_lines(out / "profile.jsonl"))
    assert total is not None and counts(total) == {"k0_linear_relu": 300}
    assert 'data-name="k0_linear_relu"' in (out / "flame.html").read_text()


@pytest.mark.parametrize(
    ("code", "kept"), [("raise SystemExit(7)", 7), ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137), ("1 / 0", 1)]
)
def test_the_exit_code_is_kept(script: Any, code: str, kept: int) -> None:
    done = profile(script(code), check=False)
    assert done.returncode == kept
    assert ("ZeroDivisionError" in done.stderr) == (kept == 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_signals_are_passed_on(script: Any, number: signal.Signals) -> None:
    program = script("""
import os, signal, sys, time
def caught(number, frame):
    os.write(1, b"caught %d\\n" % number)  # print may be what it interrupts: the signal can come inside the one below
    sys.exit(9)
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
    signal.signal(number, caught)
print("ready", flush=True)
time.sleep(60)
""")
    command = [sys.executable, "-m", "sealift", "profile", "--", str(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True, env=ENVIRON) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.readline() == f"caught {int(number)}\n"
        assert process.wait(60) == 9


def test_what_a_killed_program_recorded_is_shown(script: Any, package: Path) -> None:
    killed = SEALIFT_ONLY + "import time, os, signal\ntime.sleep(2)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    done = profile("--json", script(killed), package, "100", check=False)
    assert done.returncode == 137
    assert counts(Snapshot.from_dict(json.loads(done.stdout)["profile"])) == {"k0_linear_relu": 100}


def test_a_module(script: Any, package: Path, tmp_path: Path) -> None:
    script(SEALIFT_ONLY, "service.py")
    done = profile("--json", "--", "-m", "service", package, "30", cwd=tmp_path)
    assert counts(Snapshot.from_dict(json.loads(done.stdout)["profile"])) == {"k0_linear_relu": 30}


def test_a_program_that_leaves_by_os_exit(script: Any, package: Path) -> None:
    """It keeps what was handed over before, twice a second; the exit code is the program's."""
    code = (
        SEALIFT_ONLY
        + """
import os, time
time.sleep(2)
for _ in range(5): model(numpy.ones((3, 4), numpy.float32))
os._exit(5)
"""
    )
    done = profile("--json", script(code), package, "20", check=False)
    assert done.returncode == 5
    assert counts(Snapshot.from_dict(json.loads(done.stdout)["profile"]))["k0_linear_relu"] in (20, 25)
    done = profile(script("import os; os._exit(4)"), check=False)
    assert done.returncode == 4 and "by os._exit" in done.stderr


def test_a_folder_that_cannot_be_written(script: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        done = profile("--out", out, script("print('ran')"), check=False)
        assert (done.returncode, done.stdout) == (1, "") and "help: a folder that can be written" in done.stderr and "Traceback" not in done.stderr


def test_a_disk_that_is_full_at_the_end(
    script: Any, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program ran, whatever becomes of its profile: its exit code is kept."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("sealift.cli.profile._write_files", full)
    program = script(SEALIFT_ONLY + "sys.exit(6)\n")
    assert main(["profile", "--out", str(tmp_path / "out"), str(program), str(package), "20"], {}) == 6
    assert "is not complete: [Errno 28]" in capsys.readouterr().err


def test_nobody_reports() -> None:
    done = profile("--", "true")
    assert "no process reported" in done.stderr and "sealift doctor" in done.stderr


@pytest.mark.parametrize(
    ("words", "help"),
    [
        ((), "no program"),
        (("--", "/no/such/program"), "cannot run"),
        (("--sink", "xml", "true"), "no sink"),
        (("--sampling", "2", "true"), "sampling=2.0"),
        (("--budget", "1", "true"), "below 1"),
        (("--label", "a,b", "true"), "one key of debug_info"),
    ],
)
def test_wrong_use(words: tuple[str, ...], help: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", *words], {}) == 1
    assert help in capsys.readouterr().err


def test_live_shows_the_table_below_the_output(script: Any, package: Path) -> None:
    pytest.importorskip("rich")
    import pty

    ours, theirs = pty.openpty()
    slow = script(SEALIFT_ONLY + "import time\nprint('still here', flush=True)\ntime.sleep(2)\n")
    command = [sys.executable, "-m", "sealift", "profile", "--live", "--", str(slow), str(package), "50"]
    environ = {**ENVIRON, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ)
    os.close(theirs)
    text = b""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            data = os.read(ours, 65536)
        except OSError:
            break
        if not data:
            break
        text += data
    os.close(ours)
    assert process.wait(60) == 0
    shown = text.decode(errors="replace")
    assert "done" in shown and "still here" in shown
    assert shown.count("k0_linear_relu") >= 2  # while it ran, and at the end


def test_the_variable_alone(script: Any, package: Path, tmp_path: Path) -> None:
    """As a service has it: no `sealift profile`."""
    program = script(SEALIFT_ONLY)
    settings = f"sampling=1,duty_cycle=1,budget=0,bursts=0,sink=table,sink=json:{tmp_path}/{{pid}}.jsonl"
    done = subprocess.run(
        [sys.executable, program, package, "70"], capture_output=True, text=True, timeout=120, env=ENVIRON | {"SEALIFT_OBSERVE": settings}
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "k0_linear_relu" in done.stderr
    total = merged([s for path in tmp_path.glob("*.jsonl") for s in read_json_lines(path)])
    assert total is not None and counts(total) == {"k0_linear_relu": 70}


# ---- a package alone ---------------------------------------------------------------------------------------------------------------


def test_a_package_alone(package: Path) -> None:
    done = profile("--size", "batch=512", "--seconds", "0.2", package)
    assert "small at batch = 512" in done.stdout and "this machine's best: " in done.stdout
    row = next(line for line in done.stdout.splitlines() if line.startswith("k0_linear_relu"))
    assert "memory" in row and "aten.linear.default, aten.relu.default @ " in row
    answer = json.loads(profile("--json", "--size", "batch=512", "--seconds", "0.2", package).stdout)
    kernel = answer["kernels"][0]
    assert (kernel["flops"], kernel["bytes"], answer["sizes"]) == (512 * 3 * (2 * 4 + 2), 4 * (512 * (4 + 3) + 4 * 3 + 3), {"batch": 512})
    assert kernel["bytes_per_s"] == pytest.approx(kernel["bytes"] / kernel["median_ns"] * 1e9)


def test_times_are_shares_of_all_kernels_and_the_rest_has_a_line() -> None:
    from sealift.cli.profile_package import Whole, rates_text
    from sealift.observe.attribution_rates import Peak, Rate

    shown = [Rate(f"k{i}", "aten.mm", 250 * (3 - i), 7359.3 + i, 1, 1, 1.0, 1.0, "memory", 0.5) for i in range(2)]
    lines = rates_text(shown, Peak(1e9, 1e9), "", Whole(2500, 53)).splitlines()
    assert [line.split()[1] for line in lines[-3:-1]] == ["30.0%", "20.0%"]
    assert lines[-1] == "51 more kernels, 50.0%"
    assert "more kernel" not in rates_text(shown, Peak(1e9, 1e9), "", Whole(1250, 2))


def test_medians_are_exact(package: Path) -> None:
    """Not edges of a histogram's buckets, which many kernels share."""
    answer = json.loads(profile("--json", "--size", "batch=512", "--seconds", "0.2", package).stdout)
    edges = [2 ** (i / 8) for i in range(320)]
    for kernel in answer["kernels"]:
        assert kernel["median_ns"] * 2 == int(kernel["median_ns"] * 2)  # of whole nanoseconds
        assert min(abs(kernel["median_ns"] / edge - 1) for edge in edges if edge != int(edge)) > 1e-9


def test_options_behind_a_package_are_explained(package: Path) -> None:
    done = profile(package, "--size", "batch=2", check=False)
    assert done.returncode != 0 and "options come before the package" in done.stderr


def test_the_machines_peak() -> None:
    answer = json.loads(profile("--json", "--roofline").stdout)
    assert answer["peak"]["flops_per_s"] > 1e8 and answer["peak"]["bytes_per_s"] > 1e8
