"""The chat page, as a person uses it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from luminal.serve.app import make_app
from tests.serve import browser
from tests.serve.browser import Page
from tests.serve.running import LIMITS, Running, listening

pytestmark = pytest.mark.skipif(browser.PROGRAM is None, reason="there is no Chromium")


@pytest.fixture
def page(server: Running) -> Iterator[Page]:
    with browser.opened(f"{server.url}/") as found:
        yield found


def write(page: Page, text: str) -> None:
    """Types a text and sends it."""
    page.value(f"by('text').value = {text!r}; by('form').requestSubmit()")


def test_a_talk(page: Page) -> None:
    page.wait("by('model').textContent == 'tiny'")
    page.value("by('temperature').value = 0; by('tokens').value = 12")
    write(page, "hello")
    page.wait("!by('send').hidden && messages.length == 2")
    assert page.value("document.querySelector('#talk .user').textContent") == "hello"
    assert len(page.value("messages[1].content")) == 12
    assert page.value("document.querySelector('#talk .assistant').textContent")
    write(page, "more")
    page.wait("messages.length == 4")
    assert page.value("document.querySelectorAll('#talk .assistant').length") == 2
    assert page.value("document.querySelectorAll('#talk .error').length") == 0


def test_errors_are_shown_and_the_talk_goes_on(page: Page) -> None:
    page.value("by('tokens').value = 1000000")
    write(page, "hello")
    page.wait("document.querySelector('#talk .error') !== null")
    assert "max_tokens" in page.value("document.querySelector('#talk .error').textContent")
    assert not page.value("by('send').hidden")


def test_markup_in_a_text_stays_text(page: Page) -> None:
    write(page, "<img src=x onerror=document.title=1>")
    page.wait("document.querySelector('#talk .user') !== null")
    assert page.value("document.querySelectorAll('#talk img').length") == 0
    assert page.value("document.title") == "Luminal"


def test_stop(page: Page, server: Running) -> None:
    page.value("by('tokens').value = 90")
    write(page, "hello")
    page.value("by('stop').click()")
    page.wait("!by('send').hidden")
    assert server.blocks_are_free()


MARKDOWN = """# Head
A *word*, a **strong** one, `a<b` and [here](https://a.example) but not [there](javascript:1).

- one
  - inner
- two

```py
x = "<b>"
```
> said

| a | b |
|---|---|
| 1 | <i>2</i> |

<img src=x onerror=document.title=1> 2 * 3 * 4, snake_case_name"""


def test_markdown(page: Page) -> None:
    page.value(f"draw(show('assistant', ''), {MARKDOWN!r})")
    shown = "document.querySelector('#talk .assistant').innerHTML"
    html = page.value(shown)
    for part in (
        "<h1>Head</h1>", "<em>word</em>", "<strong>strong</strong>", "<code>a&lt;b</code>",
        '<a href="https://a.example" target="_blank" rel="noopener noreferrer">here</a>',
        "<span>there</span>", "<ul><li>one<ul><li>inner</li></ul></li><li>two</li></ul>",
        '<pre><code>x = "&lt;b&gt;"</code>', "<blockquote><p>said</p></blockquote>",
        "<th>b</th>", "<td>&lt;i&gt;2&lt;/i&gt;</td>",
        "<p>&lt;img src=x onerror=document.title=1&gt; 2 * 3 * 4, snake_case_name</p>",
    ):  # fmt: skip
        assert part in html, (part, html)
    assert page.value("document.title") == "Luminal"


def test_markdown_takes_no_long_time(page: Page) -> None:
    """Texts that a careless pattern reads for ever."""
    page.wait("by('model').textContent == 'tiny'")
    seconds = page.value(
        "(() => { const begin = performance.now();"
        "for (const text of ['*', '`', '[', '_', '**a', '> ', '- ', '~~', '|-', '![a](', '1. '])"
        "  markdown(text.repeat(6000));"
        "return performance.now() - begin; })()"
    )
    assert seconds < 5000


def test_a_system_prompt_and_a_new_chat(page: Page, server: Running) -> None:
    page.wait("by('model').textContent == 'tiny'")
    page.value("by('tokens').value = 3; by('system').value = 'Be kind.'")
    page.value(
        "window.sent = []; const plain = window.fetch;"
        "window.fetch = (a, b) => { sent.push(b?.body); return plain(a, b); }; 0"
    )
    write(page, "hello")
    page.wait("!by('send').hidden && messages.length == 2")
    body = json.loads(page.value("sent.at(-1)"))
    assert body["messages"][0] == {"role": "system", "content": "Be kind."}
    page.value("by('new').click()")
    assert page.value("[messages.length, by('talk').children.length]") == [0, 0]
    write(page, "more")
    page.wait("!by('send').hidden && messages.length == 2")
    assert len(json.loads(page.value("sent.at(-1)"))["messages"]) == 2


def test_themes(page: Page) -> None:
    colors = set()
    for name in ("light", "dark"):
        page.value("by('theme').click()")
        assert page.value("by('theme').textContent") == f"Theme: {name}"
        colors.add(page.value("getComputedStyle(document.body).backgroundColor"))
    assert colors == {"rgb(255, 255, 255)", "rgb(22, 24, 28)"}


def test_a_key_that_is_missing(server: Running) -> None:
    app = make_app(server.served, LIMITS, keys=["right"])
    with listening(app) as url, browser.opened(url) as page:
        page.wait("document.querySelector('#talk .notice') !== null")
        assert "needs an API key" in page.value("document.body.innerText")
        assert page.value("by('settings').open")
        page.value("by('key').value = 'right'; by('key').dispatchEvent(new Event('change'))")
        page.wait("by('model').textContent == 'tiny'")
        assert page.value("document.querySelector('#talk .notice') === null")
