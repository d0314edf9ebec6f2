# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the documentation site: the guides, a page for each role, module and filter, and all messages."""

from __future__ import annotations

import os
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from testbed import messages, settings
from testbed.prerequisites import make_environment
from testbed.progress import CommandError, run

_SOURCES = "https://github.com/gpu-fleet/gpu.fleet/blob/main/"
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
# The documentation of Ansible itself and of other collections is not there when the site is built without a network.
_ELSEWHERE = re.compile(
    r"undefined label: '(?:ansible_collections\.(?!gpu\.fleet\b)|common_return_values|ansible_configuration_settings"
    r"|(?:action|callback|filter|test)_plugins')|'envvar' reference target not found: ANSIBLE_"
)

_CONFIGURATION = """\
project = "gpu.fleet"
author = copyright = "gpu.fleet contributors"
title = html_short_title = html_title = "gpu.fleet"
extensions = ["myst_parser", "sphinx_antsibull_ext"]
myst_heading_anchors = 4
html_theme = "sphinx_ansible_theme"
html_theme_options = {
    "display_version": False,
    "documentation_home_url": "https://github.com/gpu-fleet/gpu.fleet",
    "topbar_links": {},
}
html_static_path = ["static"]
html_css_files = ["documentation.css"]
html_show_sphinx = False
html_copy_source = False
# An en dash in place of `--` is no option of any program.
smartquotes = False
highlight_language = "none"
# Pages of roles are read by name, not in an order.
suppress_warnings = ["toc.not_included", "toc.excluded"]
"""

_INDEX = """\
# gpu.fleet

From a bare Linux to running GPU containers on NVIDIA servers; GPU settings that are declared, applied and read back.

```{{toctree}}
:maxdepth: 1

Quick start <README>
All guides and parts <docs/README>
All messages with what to do <messages>
```

{topics}
```{{toctree}}
:caption: Reference
:maxdepth: 2

Roles, modules, filters <reference/index>
```

```{{toctree}}
:caption: Project
:maxdepth: 1

Changelog <CHANGELOG>
Contribute <CONTRIBUTING>
Report a vulnerability <SECURITY>
CODE_OF_CONDUCT
```
"""
_TOPIC = """\
```{{toctree}}
:caption: {title}
:maxdepth: 1

{entries}
```

"""
_GUIDES = Path("docs/README.md")
_CSS = settings.ROOT / "testbed" / "documentation.css"


def build(directory: Path) -> Path:
    """Build the site below `directory`; returns its first page. Raises CommandError, also for a warning of Sphinx."""
    venv = settings.CACHE / "venv-docs"
    make_environment(venv, settings.ROOT / "requirements" / "docs.txt")
    source, html = directory / "source", directory / "html"
    for made in (source, html):
        shutil.rmtree(made, ignore_errors=True)
    pages(source)
    env = settings.environment() | {"PATH": f"{venv / 'bin'}:/usr/bin:/bin"}
    reference = ["--use-current", "--squash-hierarchy", "--no-add-antsibull-docs-version", "--dest-dir"]
    (source / "reference").mkdir()
    run(
        [venv / "bin" / "antsibull-docs", "collection", *reference, source / "reference", "gpu.fleet"],
        log="docs",
        env=env,
    )
    index = source / "reference" / "index.rst"
    index.write_text(index.read_text("utf-8").replace("Gpu.Fleet\n=========", "Reference\n=========", 1), "utf-8")
    warnings = directory / "warnings"
    sphinx = [venv / "bin" / "sphinx-build", "-q", "-b", "html", "-d", directory / "doctrees", "-w", warnings]
    run([*sphinx, source, html], log="docs", env=env)
    shutil.rmtree(directory / "doctrees", ignore_errors=True)
    found = [line for line in warnings.read_text(encoding="utf-8").splitlines() if line and not _ELSEWHERE.search(line)]
    if found:
        raise CommandError("\n".join(["the documentation has:", *found]))
    return html / "index.html"


def pages(source: Path) -> None:
    """Write what Sphinx reads, except for the reference: the guides at their places, index, messages, settings."""
    for path in _guides():
        target = source / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_for_the_site((settings.ROOT / path).read_text(encoding="utf-8"), path), encoding="utf-8")
    for path in _pictures():
        shutil.copy2(settings.ROOT / path, source / path)
    (source / "index.md").write_text(_index(), encoding="utf-8")
    (source / "static").mkdir()
    shutil.copy2(_CSS, source / "static")
    (source / "messages.md").write_text(messages.page(settings.ROOT), encoding="utf-8")
    (source / "conf.py").write_text(_CONFIGURATION, encoding="utf-8")


def _index() -> str:
    """The first page: topics and guides as docs/README.md lists them, and what it does not list."""
    index = (settings.ROOT / _GUIDES).read_text(encoding="utf-8")
    guides = index.partition("\n## Guides\n\n")[2].partition("\n\n")[0]
    topics = []
    for topic in re.split(r"^- ", guides, flags=re.MULTILINE)[1:]:
        title, _colon, links = topic.partition(":")
        named = re.findall(r"\]\(([^)]+)\.md\)", links)
        entries = [os.path.normpath(_GUIDES.parent / name) for name in named]
        topics.append(_TOPIC.format(title=title, entries="\n".join(entries)))
    return _INDEX.format(topics="".join(topics))


def _guides() -> list[Path]:
    """The pages in Markdown, relative to the checkout."""
    patterns = ("*.md", "docs/*.md", "roles/*/README.md", "examples/*/README.md")
    found = [path for pattern in patterns for path in settings.ROOT.glob(pattern)]
    return sorted(path.relative_to(settings.ROOT) for path in found)


def _pictures() -> list[Path]:
    """The pictures of the guides, relative to the checkout."""
    return [
        path.relative_to(settings.ROOT) for suffix in ("png", "svg") for path in settings.ROOT.glob(f"docs/*.{suffix}")
    ]


def _for_the_site(text: str, page: Path) -> str:
    """A page whose links to files that are no pages of the site lead to the repository."""
    known = {*_guides(), *_pictures()}

    def link(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(page.parent / match[1]))
        return match[0] if target in known else f"{_SOURCES}{target}{match[2] or ''}"

    return _LINK.sub(link, text).replace("```mermaid", "```text")


class _Page(HTMLParser):
    """Anchors and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect."""
        values = dict(attrs)
        self.anchors.update(filter(None, (values.get("id"), values.get("name") if tag == "a" else None)))
        if tag in ("a", "link", "script", "img"):
            self.links.update(filter(None, (values.get("href"), values.get("src"))))


def links(html: Path) -> tuple[list[str], list[str]]:
    """Broken links within a site, as `page: target`, and the addresses of other sites that it links to."""
    read = {path: _Page(path.read_text(encoding="utf-8")) for path in html.rglob("*.html")}
    broken, elsewhere = [], set()
    for path, page in read.items():
        for target in page.links:
            if re.match(r"[a-z]+:|//", target):
                elsewhere.add(target)
                continue
            name, _hash, anchor = target.partition("#")
            there = Path(os.path.normpath(path.parent / unquote(name.partition("?")[0]))) if name else path
            lacks_anchor = anchor and there in read and unquote(anchor) not in read[there].anchors
            if not there.exists() or lacks_anchor:
                broken.append(f"{path.relative_to(html)}: {target}")
    return sorted(broken), sorted(elsewhere)
