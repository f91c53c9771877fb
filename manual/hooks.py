"""What mkdocs calls: the README and the reference become pages, links to sources become names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from manual import commands, reference

README = "readme.md"
WORKER = Path(__file__).with_name("iframe-worker.js")
OUTSIDE = "src|tests|bench|examples|include|LICENSE"
"""Where links go that are none on the site."""
ASIDE = (
    "architecture.md", "backends.md", "changes.md", "design.md", "lessons.md", "measurements.md",
)  # fmt: skip
"""Pages that name everything: the search gives others first."""


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that are made."""
    readme = (reference.ROOT / "README.md").read_text("utf-8")
    made = {
        **reference.pages(),
        **commands.pages(),
        README: readme.replace("](docs/", "]("),
        f"assets/{WORKER.name}": WORKER.read_text("utf-8"),
    }
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links out of the folder of docs: the README is a page here, any other file a name."""
    if page.file.src_uri in ASIDE:
        page.meta["search"] = {"boost": 0.1}
    if page.file.src_uri.startswith("reference/"):
        return markdown
    text = markdown.replace("](../README.md", f"]({README}")
    text = re.sub(r"^(```\w+) .*$", r"\1", text, flags=re.MULTILINE)  # how tests run it
    return re.sub(rf"\[([^\]]*)\]\((?:\.\./)?(?:{OUTSIDE})[^)]*\)", r"\1", text)
