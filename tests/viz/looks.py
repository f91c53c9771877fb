"""What is asked of every page of the viewer, whatever its document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from luminal.viz.page import page as written
from tests.serve import browser
from tests.serve.browser import Page

VIEWS = ("overview", "graph", "spellings", "timeline", "memory", "kernels", "search")
NO_NUMBER = re.compile(r"NaN|undefined|Infinity|\[object|\bnull\b|\d[eE][+-]\d")

# Texts of drawings that are cut off, lie over each other or over a dot.
CROWDED = """[...document.querySelectorAll('section:not([hidden]) svg')].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  const boxes = [...svg.querySelectorAll('text, circle')]
    .map(one => [one, one.getBoundingClientRect()]);
  const cut = boxes.filter(([one, box]) => one.tagName === 'text' && (box.left < frame.left - 1
    || box.right > frame.right + 1 || box.top < frame.top - 2 || box.bottom > frame.bottom + 2));
  const over = (a, b) => a.left + 1 < b.right && b.left + 1 < a.right && a.top + 2 < b.bottom
    && b.top + 2 < a.bottom;
  const pairs = boxes.flatMap(([one, box], k) => boxes.slice(k + 1).filter(([other, its]) =>
    [one, other].some(x => x.tagName === 'text') && over(box, its)).map(([other]) =>
    `${one.textContent || 'dot'} over ${other.textContent || 'dot'}`));
  return [...cut.map(([one]) => `${one.textContent} is cut`), ...pairs];
})"""

# The contrast of two colours by WCAG 2.2.
CONTRAST = """(() => {
  const light = color => { const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map(n => n / 255)
    .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const contrast = (a, b) => { const lights = [light(paint[a]), light(paint[b])];
    const [x, y] = lights.sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05); };
  return Object.fromEntries(PAIRS.map(([a, b]) => [`${a} on ${b}`, contrast(a, b)])); })()"""
TEXTS = [(text, below) for text in ("text", "faint", "strong") for below in ("page", "raised")]
TEXTS += [("text", "mark"), ("strong", "mark"), ("faint", "mark"), ("on-strong", "strong")]
TEXTS += [("page", f"k{n}") for n in range(8)]  # names in bars
TEXTS += [(word, below) for word in ("good", "wrong") for below in ("page", "raised", "mark")]
SHAPES = [("edge", "page"), ("edge", "raised"), *((f"k{n}", "raised") for n in range(8))]


@contextmanager
def opened(document: dict[str, Any], folder: Path, address: str = "") -> Iterator[Page]:
    """A document's page in a browser, from a file."""
    file = folder / "viz.html"
    file.write_text(written(document), encoding="utf-8")
    with browser.opened(f"{file.as_uri()}{address}") as page:
        yield page


def show(page: Page, view: str) -> None:
    """Opens a view, and waits until it is drawn."""
    page.value(f"open({view!r})")
    if view == "graph":
        page.wait("performance.getEntriesByName('drawn hlir').length > 0")
    page.value(
        "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))).then()"
    )


def check(page: Page, view: str) -> None:
    """That a view says something, in numbers people read, with nothing cut or over another."""
    show(page, view)
    panel = f"document.querySelector('#view-{view}')"
    text = page.value(f"{panel}.innerText")
    # Texts of programs may hold any word.
    own = page.value(f"""(() => {{ const copy = {panel}.cloneNode(true);
      copy.querySelectorAll('.code, code, pre').forEach(one => one.remove());
      return copy.textContent; }})()""")
    assert len(text) > 20, view
    assert not NO_NUMBER.search(own), (view, NO_NUMBER.search(own), own)
    assert page.value(CROWDED) == [], view
    assert page.value("document.documentElement.scrollWidth <= innerWidth"), view
    assert page.errors == [], (view, page.errors)


def contrasts(page: Page, pairs: list[tuple[str, str]]) -> dict[str, float]:
    """By pair of colours."""
    found: dict[str, float] = page.value(CONTRAST.replace("PAIRS", str([list(p) for p in pairs])))
    return found


def marked(page: Page, stage: str) -> list[int]:
    """The nodes of a stage that its text shows as selected, of those in sight."""
    found: list[int] = page.value(f"""[...document.querySelectorAll(
      'section[aria-label="{stage}"] .row.met, section[aria-label="{stage}"] .row.at')]
      .map(row => Number(row.dataset.i))""")
    return found
