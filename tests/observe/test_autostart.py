"""SEALIFT_OBSERVE: what it may say, and that a program without it pays nothing and one with a wrong one runs on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sealift.observe import autostart
from sealift.observe.autostart_settings import Settings
from sealift.observe.sinks import SinkSpecError

ROOT = Path(__file__).parents[2]
PTH = ROOT / "sealift/observe/sealift_observe.pth"


def test_settings() -> None:
    assert Settings.parse("1") == Settings.parse("on") == Settings()
    text = "every=burst,sampling=0.01,duty_cycle=0.5,budget=0.002,bursts=0.1,shapes=1,labels=tenant+phase,interval=2.5,sink=json:a%2Cb.jsonl,sink=otlp:http://h:4318"
    parsed = Settings.parse(text)
    assert parsed == Settings("burst", 0.01, 0.5, 0.002, 0.1, True, ("tenant", "phase"), 2.5, ("json:a,b.jsonl", "otlp:http://h:4318"))
    assert str(parsed) == text
    assert Settings.parse(str(parsed)) == parsed
    assert list(parsed.factories()) == ["json:a,b.jsonl", "otlp:http://h:4318"]
    assert Settings.parse("sampling=0.5").sinks == ("table",)


@pytest.mark.parametrize(
    "text",
    [
        "yes",
        "sampling",
        "sampling=x",
        "sampling=0",
        "sampling=1.5",
        "duty_cycle=0",
        "budget=-1",
        "budget=1",
        "every=day",
        "shapes=2",
        "labels=",
        "labels=+",
        "interval=0",
        "sink=xml",
        "sink=",
    ],
)
def test_wrong_settings(text: str) -> None:
    with pytest.raises(SinkSpecError):
        Settings.parse(text)


def test_a_trace_belongs_to_one_process() -> None:
    assert autostart._of_one_process("chrome:a/t.json") == "chrome:a/t.{pid}.json"
    assert autostart._of_one_process("chrome:a.b/t") == "chrome:a.b/t.{pid}"
    assert autostart._of_one_process("chrome:{id}.json") == "chrome:{id}.json"
    assert autostart._of_one_process("json:a.jsonl") == "json:a.jsonl"


def test_places_are_those_of_the_start() -> None:
    here = os.getcwd()
    assert autostart._from_here("json:a/{pid}.jsonl") == f"json:{here}/a/{{pid}}.jsonl"
    assert autostart._from_here("parquet:p") == f"parquet:{here}/p"
    for spec in ("json:/a.jsonl", "table", "otlp:http://localhost:4318", "prometheus:9464"):
        assert autostart._from_here(spec) == spec


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Reads the .pth file as site does, wherever this sealift is installed."""
    environ = {k: v for k, v in os.environ.items() if k != "SEALIFT_OBSERVE"} | variables
    program = f"import site; site.addpackage({str(PTH.parent)!r}, {PTH.name!r}, set()); " + code
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environ, timeout=120)


@pytest.mark.parametrize("value", [None, "", "0", "off"])
def test_without_the_variable_nothing_is_imported(value: str | None) -> None:
    done = python("import sys; print([m for m in sys.modules if m.startswith('sealift')])", **({} if value is None else {"SEALIFT_OBSERVE": value}))
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_wrong_variable_is_one_line_on_stderr() -> None:
    done = python("print('ran')", SEALIFT_OBSERVE="smapling=1")
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("sealift: this process is not observed: [E-SINK-002] 'smapling=1' is no setting; help: 1, or every=...")
