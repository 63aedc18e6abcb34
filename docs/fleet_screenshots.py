"""Pictures of the fleet's dashboard, light and dark, into docs/images/: a simulated fleet with one planted regression, in headless Chromium.

make fleet-screenshots        # needs chromium: apt-get install chromium fonts-dejavu-core"""

from __future__ import annotations

import tempfile
import threading
from datetime import datetime, timezone
from pathlib import Path

from sealift.fleet.collector.app import Collector
from sealift.fleet.collector.serve import Address, serve
from sealift.fleet.dashboard.view import at
from sealift.fleet.otlp.decode import Decoder
from sealift.fleet.rules import Rule, Watch
from sealift.fleet.simulator import WORKLOADS, Operator, Plan, Regression, Simulation, Workload
from sealift.fleet.store.embedded import EmbeddedStore
from sealift.fleet.store.interface import Retention
from tests.fleet.chromium import Browser

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs/images"
START_S = int(datetime(2026, 5, 4, 8, tzinfo=timezone.utc).timestamp())
MINUTES = 120
REGRESSION_S = MINUTES * 40
END_S = START_S + MINUTES * 60
WIDTH, TALLEST = 1440, 1500
MOST_BYTES = 300_000
PAGES = {
    "overview": "/?from=-2h",
    "operator": "/operator?name=aten::layer_norm&from=-2h",
    "model": "/model?name=minilm-v2&from=-2h",
    "compare": f"/compare?from={at(START_S)}&to={at(START_S + REGRESSION_S)}&b_from={at(START_S + REGRESSION_S)}&b_to={at(END_S)}",
}


def encoder(layers: int) -> tuple[Operator, ...]:
    """A compiled encoder's kernels, layer by layer, as sealift names them."""
    found = []
    for i in range(layers):
        where = f"encoder.layer.{i}"
        found += [
            Operator(f"k{5 * i}_qkv", 140e3 + 4e3 * i, 0.2, 1, 1.0, "sealift", f"aten.linear @ model.py:22 {where}.attn.qkv"),
            Operator(f"k{5 * i + 1}_attention", 160e3, 0.3, 1, 1.0, "sealift", f"aten.scaled_dot_product_attention @ model.py:24 {where}.attn"),
            Operator(f"k{5 * i + 2}_mm_add", 95e3, 0.2, 1, 1.0, "sealift", f"aten.mm, aten.add @ model.py:26 {where}.attn.out"),
            Operator(f"k{5 * i + 3}_mm_gelu", 210e3, 0.2, 1, 1.0, "sealift", f"aten.mm, aten.gelu @ model.py:31 {where}.mlp"),
            Operator(f"k{5 * i + 4}_layer_norm", 14e3, 0.3, 2, 1.0, "sealift", f"aten.layer_norm @ model.py:35 {where}.norm"),
        ]
    return tuple(found)


def fill(store: EmbeddedStore) -> None:
    workloads = tuple(Workload(w.service, w.version, w.model, w.share, encoder(4)) if w.model == "minilm-v2" else w for w in WORKLOADS)
    plan = Plan(24, MINUTES, START_S, seed=4, duty=0.5, regression=Regression(after_s=REGRESSION_S), workloads=workloads)
    decoder, batches = Decoder(), []
    for sent in Simulation(plan):
        batches += getattr(decoder, sent.signal)(sent.body, (sent.time_s + 1) * 10**9).batches
        if len(batches) > 400:
            store.commit(batches, sent.time_s * 10**9)
            batches.clear()
    store.commit(batches, END_S * 10**9)
    store.maintain(END_S * 10**9)


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sealift-screenshots-") as folder:
        store = EmbeddedStore(Path(folder) / "store", Retention(None, None, None, None))
        fill(store)
        collector = Collector(store, clock_ns=lambda: (END_S + 5) * 10**9, watch=Watch((Rule(share=0.002),)))
        collector.maintain()
        urls: list[str] = []
        ready = threading.Event()
        threading.Thread(target=serve, args=(collector, Address(port=0), lambda url: (urls.append(url), ready.set())), daemon=True).start()
        ready.wait()
        with Browser.start() as browser:
            for name, path in PAGES.items():
                for scheme in ("light", "dark"):
                    page = browser.open(urls[0] + path, WIDTH, 900, scheme)
                    page.go(urls[0] + path)  # once more: the first view of a collector reads its files
                    height = min(page.evaluate("document.documentElement.scrollHeight"), TALLEST)
                    page.send("Emulation.setDeviceMetricsOverride", width=WIDTH, height=height, deviceScaleFactor=1, mobile=False)
                    target = IMAGES / f"fleet-{name}-{scheme}.png"
                    page.picture(target)
                    page.close()
                    assert target.stat().st_size < MOST_BYTES, f"{target}: {target.stat().st_size} bytes"
                    print(f"{target.relative_to(ROOT)}  {WIDTH} x {height}, {target.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
