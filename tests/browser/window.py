# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A page in headless Chromium, as a user sees and uses it; the fixture `browser` in conftest.py starts Chromium."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Window:
    """The window of the browser with one page in it."""

    def __init__(self, driver: Any, page: Path | str) -> None:
        """Open the page, a file or an address, in `driver`, selenium's WebDriver."""
        self.driver = driver
        # What an earlier page has reported is not of this one.
        driver.get_log("browser")
        driver.get(page.as_uri() if isinstance(page, Path) else page)

    def run(self, expression: str, *arguments: Any) -> Any:
        """The value of a JavaScript expression."""
        return self.driver.execute_script(f"return {expression.strip()}", *arguments)

    def wait(self, expression: str, seconds: float = 30) -> None:
        """Wait until a JavaScript expression holds; raises selenium's TimeoutException, which names it."""
        selenium: Any = importlib.import_module("selenium.webdriver.support.wait")
        selenium.WebDriverWait(self.driver, seconds).until(lambda _driver: self.run(expression), expression)

    def find(self, selector: str) -> list[Any]:
        """The elements that a CSS selector finds."""
        found: list[Any] = self.driver.find_elements("css selector", selector)
        return found

    def strings(self, selector: str) -> list[str]:
        """The text of each element that a CSS selector finds, also out of view."""
        found: list[str] = self.run(
            "[...document.querySelectorAll(arguments[0])].map((element) => element.textContent)", selector
        )
        return found

    def type(self, selector: str, words: str) -> None:
        """Replace the text of a field."""
        (field,) = self.find(selector)
        field.clear()
        field.send_keys(words)

    def messages(self) -> list[Any]:
        """What the page has reported to the console since the last call, errors of its program included."""
        found: list[Any] = self.driver.get_log("browser")
        return found

    def screenshot(self, path: Path) -> None:
        """Write what is in view as PNG."""
        self.driver.save_screenshot(str(path))

    @contextmanager
    def media(self, media: str = "", **features: str) -> Iterator[None]:
        """Emulate a medium (`print`) or features, as prefers_color_scheme="dark"."""
        found = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": found})
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})

    @contextmanager
    def width(self, pixels: int) -> Iterator[None]:
        """Emulate a screen of this width."""
        metrics = {"width": pixels, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def low_contrasts(self, selector: str) -> dict[str, float]:
        """Contrast ratios below 4.5, which WCAG 2 requires of text (level AA), by element and class."""
        found: dict[str, float] = self.run(_CONTRASTS, selector)
        if not found:
            raise AssertionError(f"the page has no {selector}")
        return {name: ratio for name, ratio in found.items() if ratio < 4.5}


_CONTRASTS = """
((selector) => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const mixed = (...colors) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const color of colors) { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = (color) => color.map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const found = {};
  for (const element of document.querySelectorAll(selector)) {
    const behind = [];
    for (let each = element; each; each = each.parentElement) behind.unshift(getComputedStyle(each).backgroundColor);
    const back = mixed("white", ...behind);
    const style = getComputedStyle(element);
    const front = mixed(`rgb(${back})`, element instanceof SVGElement ? style.fill : style.color);
    const [brighter, darker] = [luminance(back), luminance(front)].sort((one, other) => other - one);
    const name = `${element.localName}.${element.getAttribute("class") || ""}`;
    found[name] = Math.min(found[name] || 99, (brighter + 0.05) / (darker + 0.05));
  }
  return found;
})(arguments[0])
"""
