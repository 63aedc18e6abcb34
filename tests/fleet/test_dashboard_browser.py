"""The dashboard in real headless Chromium: what it loads, the console, contrast, names for screen readers, keys, the live view, sign-in.

Skipped where no Chromium is installed (`apt-get install chromium`; SEALIFT_TEST_CHROMIUM names another one)."""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2")

from sealift.fleet.collector.limits import Limits
from sealift.fleet.dashboard import access
from sealift.fleet.dashboard.view import at
from sealift.fleet.rules import Rule, Watch
from sealift.fleet.store.embedded import EmbeddedStore
from tests.fleet.chromium import Browser, Page, executable
from tests.fleet.conftest import START_S, Fleet, fill
from tests.fleet.test_dashboard import HOSTILE, PATIENCE_S, PATIENT, hostile_batches, paths

pytestmark = pytest.mark.skipif(executable() is None, reason="no Chromium here; apt-get install chromium, or SEALIFT_TEST_CHROMIUM=PATH")

Serving = Callable[..., str]

# The contrast of every visible text with what lies behind it, as WCAG computes it; what is below the bound.
CONTRAST = """
(() => {
  const number = (text) => { const v = text.match(/[\\d.]+/g).map(Number); return v.length < 4 ? [...v, 1] : v; };
  const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] + below[i] * (1 - top[3]));
  const light = (rgb) => { const [r, g, b] = rgb.map((c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (element) => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) {
      const colour = number(getComputedStyle(one).backgroundColor);
      if (colour[3] > 0) layers.unshift(colour);
      if (colour[3] === 1) break;
    }
    return layers.reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest(".hidden, title, desc, script, datalist, option")) continue;
    const style = getComputedStyle(element), inside = element instanceof SVGElement;
    const colour = number(inside ? style.fill : style.color), back = behind(element);
    const a = light(over(colour, back)), b = light(back);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    seen++;
    if (ratio < (large ? 3 : 4.5)) found.push(`${ratio.toFixed(2)} ${element.tagName}.${element.getAttribute("class")} ${walker.currentNode.data.trim().slice(0, 40)}`);
  }
  return { seen, found };
})()
"""
TWICE = "(() => { const ids = [...document.querySelectorAll('[id]')].map((e) => e.id); return ids.filter((id, i) => ids.indexOf(id) !== i); })()"
NAMED = {"link", "button", "textbox", "combobox", "searchbox", "checkbox", "image", "img", "table", "navigation", "heading", "region", "dialog"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser.start() as started:
        yield started


@pytest.fixture
def url(store: EmbeddedStore, serving: Serving, fleet: Fleet) -> str:
    fill(store, fleet.batches())
    return serving(store, clock_ns=lambda: (fleet.end_s + 5) * 10**9, watch=Watch((Rule(),)), limits=PATIENT)


def unnamed(page: Page) -> list[str]:
    """Elements that a screen reader would announce without saying what they are."""
    nodes = page.send("Accessibility.getFullAXTree")["nodes"]
    found = []
    for node in nodes:
        role = node.get("role", {}).get("value", "")
        if not node.get("ignored") and role in NAMED and not node.get("name", {}).get("value", "").strip():
            found.append(f"{role} {node.get('backendDOMNodeId')}")
    assert len(nodes) > 20
    return found


def test_every_page_is_clean_in_light_and_dark(browser: Browser, url: str, fleet: Fleet) -> None:
    page = browser.open(url + "/nowhere")
    assert "Not found" in page.evaluate("document.title")
    browser.events.clear()  # Chromium's console says 404
    for path in paths(fleet):
        page.go(url + path)
        assert page.evaluate(TWICE) == [] and unnamed(page) == [], path
        for scheme in ("light", "dark"):
            page.scheme(scheme)
            contrast = page.evaluate(CONTRAST)
            assert contrast["seen"] > 20 and contrast["found"] == [], (path, scheme)
            shown = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(int(c) for c in shown[4:-1].split(",")) > 600) == (scheme == "light"), shown
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    assert page.problems() == []
    elsewhere = [r for r in page.requests() if not r.startswith(url)]
    assert elsewhere == [] and len(page.requests()) > len(paths(fleet))
    # On a telephone nothing lies outside the screen, either.
    page.send("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=False)
    for path in paths(fleet):
        page.go(url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    page.close()


def test_keys(browser: Browser, url: str, fleet: Fleet) -> None:
    page = browser.open(f"{url}/?from={fleet.plan.start_s}&to={fleet.end_s}")
    page.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.press("Enter")
    page.until("document.activeElement.id === 'main'")
    focus = []
    for _ in range(12):  # what Tab reaches shows where it is
        page.press("Tab")
        focus.append(page.evaluate("[document.activeElement.tagName, getComputedStyle(document.activeElement).outlineStyle]"))
    assert all(outline != "none" for _, outline in focus) and {"A", "SUMMARY"} <= {tag for tag, _ in focus}, focus
    page.press("?")
    page.until("document.getElementById('keys').open")
    page.press("Escape")
    page.until("!document.getElementById('keys').open")
    page.press("/")
    page.until("document.activeElement.id === 'pick-service'")
    page.press("g")  # typed into the field, not a command
    assert page.evaluate("document.activeElement.value") == "g"
    page.press("Escape")
    page.until("!document.querySelector('details.filters').open && document.activeElement.id === 'filters'")
    page.evaluate("document.querySelector('svg.chart').focus()")
    for _ in range(3):
        page.press("ArrowRight")
    tip = page.evaluate("document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent")
    assert "in all" in tip and page.evaluate("document.getElementById('said').textContent").startswith("20")
    page.press("Escape")
    assert page.evaluate("document.getElementById('tip').hidden")
    page.evaluate("document.activeElement.blur()")
    page.leaving(lambda: (page.press("g"), page.press("m")))
    assert page.evaluate("location.pathname") == "/models" and str(fleet.plan.start_s) in page.evaluate("location.search")
    page.leaving(lambda: page.press("["))
    span = fleet.end_s - fleet.plan.start_s
    assert page.evaluate("location.search") == f"?from={at(fleet.plan.start_s - span)}&to={at(fleet.plan.start_s)}"
    assert page.problems() == []
    page.close()


def test_a_filter_by_hand(browser: Browser, url: str, fleet: Fleet) -> None:
    page = browser.open(f"{url}/operators?from={fleet.plan.start_s}&to={fleet.end_s}")
    page.press("/")
    page.until("document.activeElement.id === 'pick-service'")
    page.type("embedder")
    page.leaving(lambda: page.press("Enter"))
    assert page.evaluate("location.search") == f"?from={fleet.plan.start_s}&to={fleet.end_s}&service=embedder"
    names = page.evaluate("[...document.querySelectorAll('tbody th')].map((e) => e.innerText.trim())")
    assert sorted(names) == ["k11_layer_norm", "k3_mm_gelu", "k4_mm_add", "k9_attention"]
    page.leaving(lambda: page.evaluate("document.querySelector('.chips a').click()"))
    assert page.evaluate("document.querySelectorAll('tbody tr').length") > 20
    page.close()


def test_live_view_follows_until_it_is_paused(browser: Browser, store: EmbeddedStore, serving: Serving, fleet: Fleet) -> None:
    process = fleet.sent[0].process
    mine = [b for b in fleet.batches() if b.resource.instance == process.instance]
    early, late = mine[: len(mine) // 2], mine[len(mine) // 2 :]
    fill(store, early)
    url = serving(store, limits=PATIENT, clock_ns=lambda: (fleet.end_s + 5) * 10**9)
    page = browser.open(f"{url}/process?instance={process.instance}")
    calls = "[...document.querySelectorAll('#operators tbody tr')].map((r) => r.innerText).join()"
    before = page.until(calls)
    page.evaluate("window.sameDocument = true; document.querySelector('#operators-title').scrollIntoView()")
    fill(store, late)
    page.until(f"{calls} !== {before!r}")
    assert page.evaluate("window.sameDocument")
    page.evaluate("document.getElementById('pause').click()")
    assert page.evaluate("document.getElementById('pause').textContent") == "Resume"
    assert page.evaluate("document.getElementById('pause').getAttribute('aria-pressed')") == "true"
    page.evaluate("document.getElementById('pause').click()")
    assert page.evaluate("document.getElementById('pause').textContent") == "Pause"
    assert page.problems() == [] and page.evaluate(TWICE) == []
    page.close()


def test_sign_in_by_hand(browser: Browser, store: EmbeddedStore, serving: Serving, fleet: Fleet) -> None:
    fill(store, fleet.batches()[:50])
    url = serving(store, limits=Limits(read_tokens=("a secret",), query_seconds=PATIENCE_S))
    page = browser.open(url + "/models?from=all")
    assert page.evaluate("document.activeElement.id") == "token" and unnamed(page) == []
    for scheme in ("light", "dark"):
        page.scheme(scheme)
        assert page.evaluate(CONTRAST)["found"] == []
    page.type("wrong")
    page.leaving(lambda: page.press("Enter"))
    assert "not one of" in page.evaluate("document.querySelector('[role=alert]').textContent")
    page.type("a secret")
    page.leaving(lambda: page.press("Enter"))
    page.until("location.pathname + location.search === '/models?from=all' && document.querySelectorAll('tbody tr').length > 0")
    assert page.evaluate("document.cookie") == ""  # scripts do not see it
    cookies = [c for c in page.send("Network.getCookies", urls=[url])["cookies"] if c["name"] == access.COOKIE]
    assert [(c["httpOnly"], c["sameSite"]) for c in cookies] == [(True, "Strict")]
    page.leaving(lambda: page.evaluate("document.querySelector('form[action=\"/sign-out\"] button').click()"))
    page.go(url + "/")
    assert page.evaluate("document.querySelector('h1').textContent") == "Sign in"
    page.close()


def test_hostile_names_run_nothing(browser: Browser, store: EmbeddedStore, serving: Serving) -> None:
    fill(store, hostile_batches())
    url = serving(store, limits=PATIENT, clock_ns=lambda: (START_S + 60) * 10**9)
    page = browser.open(url + "/health")
    page.send("Page.addScriptToEvaluateOnNewDocument", source="window.called = []; window.alert = (x) => window.called.push(x);")
    quoted = {k: urllib.parse.quote(v) for k, v in HOSTILE.items()}
    browser.events.clear()
    for path in (
        "/?by=operator", f"/operator?name={quoted['operator']}", f"/model?name={quoted['model']}", f"/host?name={quoted['host']}", "/lineage",
        f"/process?instance={quoted['instance']}", f"/?service={quoted['service']}",
    ):  # fmt: skip
        page.go(url + path)
        # What shows a name as a tooltip writes it as text, too.
        page.evaluate("document.querySelectorAll('[data-tip]').forEach((e) => e.dispatchEvent(new PointerEvent('pointermove', { bubbles: true })))")
        assert page.evaluate("window.called") == [] and page.evaluate("document.querySelectorAll('script:not([src]), img[onerror]').length") == 0, (
            path
        )
    assert page.problems() == [] and all(r.startswith(url) for r in page.requests())
    page.close()


def test_without_scripts_every_page_still_shows_all(browser: Browser, url: str, fleet: Fleet) -> None:
    page = browser.open(url + "/health")
    page.send("Emulation.setScriptExecutionDisabled", value=True)
    page.send("Page.navigate", url=f"{url}/model?name=minilm-v2&from={fleet.plan.start_s}&to={fleet.end_s}")
    end, names = time.monotonic() + PATIENCE_S, list[Any]()
    while "Kernels and operators" not in names and time.monotonic() < end:
        browser.listen(0.1)
        nodes = page.send("Accessibility.getFullAXTree")["nodes"]
        names = [n.get("name", {}).get("value") for n in nodes if n.get("role", {}).get("value") == "heading"]
    assert {"minilm-v2", "Provenance", "Time by module", "Kernels and operators"} <= set(names)
    page.close()


def test_the_driver_finds_chromium_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SEALIFT_TEST_CHROMIUM", str(tmp_path / "chromium"))
    assert executable() == str(tmp_path / "chromium")
