"""The chat page, as a person uses it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serve import browser
from tests.serve.browser import Page
from tests.serve.running import Running

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
    answer = page.value("document.querySelector('#talk .assistant').textContent")
    assert len(answer) == 12
    assert page.value("messages[1].content") == answer
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
