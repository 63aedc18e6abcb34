"""A fleet on one machine: a collector and three observed processes on loopback, then where their time went.

    make fleet-demo            # or: python examples/fleet_demo.py [--seconds 12] [--keep]

The processes: inference with eager PyTorch, a training loop, and a compiled sealift model. Nothing leaves the machine."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROLES = ("eager", "training", "sealift")


def eager(seconds: float) -> None:
    import torch

    from sealift import observe

    model = torch.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True).eval()
    x = torch.randn(4, 32, 128)
    with torch.no_grad(), observe.debug_info(model_id="encoder:1"):
        end = time.time() + seconds
        while time.time() < end:
            model(x)


def training(seconds: float) -> None:
    import torch

    from sealift import observe

    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters())
    with observe.debug_info(model_id="classifier:7"):
        end = time.time() + seconds
        while time.time() < end:
            loss = torch.nn.functional.cross_entropy(model(torch.randn(64, 64)), torch.randint(10, (64,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def compiled(seconds: float) -> None:
    import numpy as np

    import sealift
    from sealift import observe

    model = sealift.load(os.environ["DEMO_PACKAGE"])
    x = np.random.default_rng(0).standard_normal((32, 64), dtype=np.float32)
    with observe.debug_info(model_id="mlp:3"):
        end = time.time() + seconds
        while time.time() < end:
            model(x)


def run_role(role: str, url: str, seconds: float) -> None:
    from sealift import observe
    from sealift.fleet.agent import report

    observe.start(sampling_prob=0.5, duty_cycle=1.0, budget=0.0)  # a demo has seconds, not days
    exporter = report(
        url, interval_s=2.0, spool=Path(os.environ["DEMO_SPOOL"]), attributes={"service.name": f"demo-{role}", "service.version": "1.0"}
    )
    {"eager": eager, "training": training, "sealift": compiled}[role](seconds)
    exporter.close()


def make_package(folder: Path) -> Path:
    import torch

    import sealift

    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 10))
    path = folder / "mlp.pt2"
    sealift.compile(torch.export.export(model.eval(), (torch.randn(32, 64),)), str(path))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--keep", action="store_true", help="leave the collector running until Ctrl-C")
    parser.add_argument("--role", choices=ROLES, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role:
        return run_role(arguments.role, arguments.url, arguments.seconds)

    from sealift.fleet import connect
    from sealift.fleet.drive import local_collector
    from sealift.fleet.tables import text_of

    with tempfile.TemporaryDirectory(prefix="sealift-demo-") as name:
        folder = Path(name)
        environment = {**os.environ, "DEMO_PACKAGE": str(make_package(folder)), "DEMO_SPOOL": str(folder / "spool"), "OMP_NUM_THREADS": "1"}
        with local_collector(folder / "store") as url:
            print(f"collector: {url}")
            command = [sys.executable, __file__, "--url", url, "--seconds", str(arguments.seconds), "--role"]
            children = [subprocess.Popen([*command, role], env=environment) for role in ROLES]
            print(f"three processes run for {arguments.seconds:g} s: {', '.join(ROLES)}")
            failed = [role for role, child in zip(ROLES, children, strict=True) if child.wait()]
            if failed:
                raise SystemExit(f"{', '.join(failed)} failed")
            fleet = connect(url)
            times = {"start": "-10m", "end": time.time() + 60}
            print("\nTop operators of the fleet:")
            table = fleet.top(by=("service", "operator", "model"), limit=12, **times)
            print(text_of(table.select([c for c in table.column_names if not c.startswith(("p50", "samples", "self"))])))
            print("\nBy process:")
            table = fleet.top(by=("service", "pid"), **times)
            print(text_of(table.select(["service", "pid", "count", "total_ns", "share", "mean_ns"])))
            print(f"\ndashboard and API: {url}/   (sealift fleet top --url {url})")
            if arguments.keep:
                print("Ctrl-C ends it")
                try:
                    while True:
                        time.sleep(3600)
                except KeyboardInterrupt:
                    pass


if __name__ == "__main__":
    main()
