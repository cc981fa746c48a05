"""First paint, load and last figure of each command's page in headless Chromium, by its own clock;
exits 1 where the first paint takes longer than the limit or the console says anything.

The pages are made first, and one of a comparison of 100,000 points; then each is opened alone, in a
fresh tab, wide and as a phone. ``python benchmarks/page_paint.py PAGE...`` opens these pages
instead. Nothing but a note where there is no ``chromium``.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 1.0
WIDTHS = {"wide": 1400, "phone": 390}
COMMANDS = {
    "estimate": "estimate bert-large --device h100-sxm-80gb --batch 8",
    "compare": "compare resnet-50 --devices t4,h100-sxm-80gb,epyc-9654,tpu-v4i,alveo-u250",
    "train": "train llama-3.2-1b --cluster dgx-h100 --gpus 8 --search",
    "serve": "serve llama-3.1-8b --device h100-sxm-80gb --rate 4 --requests 300",
    "plan": "plan examples/vision_api.yaml",
}
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe")
POINTS = 100_000
TIMES = """(async () => {
  const painted = () => performance.getEntriesByName("first-contentful-paint");
  while (!painted().length || document.querySelector("script.packed"))
    await new Promise((done) => setTimeout(done, 50));
  const loaded = performance.getEntriesByType("navigation")[0].loadEventEnd;
  return [painted()[0].startTime, loaded, performance.now()];
})()"""


class Browser:
    """A headless browser that answers over a pipe (Chrome DevTools Protocol)."""

    def __init__(self):
        to_read, self.to_browser = os.pipe()
        self.from_browser, to_write = os.pipe()
        # the browser reads from 3 and writes to 4
        wired = f"exec chromium {' '.join(FLAGS)} about:blank 3<&{to_read} 4>&{to_write}"
        self.process = subprocess.Popen(
            ["bash", "-c", wired], pass_fds=(to_read, to_write), stderr=subprocess.DEVNULL
        )
        os.close(to_read)
        os.close(to_write)
        self.left, self.count, self.events = b"", 0, []

    def message(self):
        """The next message."""
        while b"\0" not in self.left:
            self.left += os.read(self.from_browser, 1 << 20)
        found, self.left = self.left.split(b"\0", 1)
        return json.loads(found)

    def ask(self, method, session=None, **params):
        """The answer to a command; what happens before it is kept in `events`."""
        self.count += 1
        asked = {"id": self.count, "method": method, "params": params}
        asked |= {"sessionId": session} if session else {}
        os.write(self.to_browser, json.dumps(asked).encode() + b"\0")
        while (found := self.message()).get("id") != self.count:
            self.events.append(found)
        return found["result"]

    def open(self, page, width):
        """Seconds to the first paint, to loading and the last figure; what the console said."""
        tab = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable", session)
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.ask("Emulation.setDeviceMetricsOverride", session, **screen)
        self.events.clear()
        self.ask("Page.navigate", session, url=page.absolute().as_uri())
        while not any(one.get("method") == "Page.loadEventFired" for one in self.events):
            self.events.append(self.message())
        how = {"awaitPromise": True, "returnByValue": True}
        milliseconds = self.ask("Runtime.evaluate", session, expression=TIMES, **how)
        said = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        console = [one["params"] for one in self.events if one.get("method") in said]
        self.ask("Target.closeTarget", targetId=tab)
        return *(time / 1e3 for time in milliseconds["result"]["value"]), console


def make_pages(folder):
    """Pages of the commands, and one of many points."""
    command = [sys.executable, "-m", "accelsim.cli"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    where = {"cwd": ROOT, "env": environment, "stdout": subprocess.DEVNULL}
    for name, words in COMMANDS.items():
        page = ["--report", str(folder / f"{name}.html"), "-q"]
        subprocess.run([*command, *words.split(), *page], check=True, **where)
    sys.path.insert(0, str(ROOT))
    import accelsim
    from accelsim.report.comparison_page import comparison_page
    from accelsim.report.page import write_page

    names = ["t4", "h100-sxm-80gb", "tpu-v4i"]
    rows = accelsim.compare("resnet-50", names).to_dict()
    draws = random.Random(0)
    figures = ("latency_s", "energy_per_sample_j", "cost_usd_per_1000")
    many = [
        {**row, "device": f"{row['device']} {place}"}
        | {name: row[name] and row[name] * draws.lognormvariate(0, 1) for name in figures}
        for place in range(POINTS // len(rows) + 1)
        for row in rows
    ]
    write_page(comparison_page(many, ""), folder / "points.html")
    return sorted(folder.glob("*.html"))


def main(pages):
    """Open each page and print its times."""
    if shutil.which("chromium") is None:
        print("no chromium here")
        return 0
    browser, is_bad = Browser(), False
    print(f"{'page':<12}{'width':<8}{'MB':>6} first paint      loaded       drawn  console")
    for page in pages:
        for name, width in WIDTHS.items():
            painted_s, loaded_s, drawn_s, console = browser.open(page, width)
            size = page.stat().st_size / 1e6
            times = (f"{one:>9.2f} s" for one in (painted_s, loaded_s, drawn_s))
            lines = (json.dumps(one)[:200] for one in console)
            print(f"{page.stem:<12}{name:<8}{size:>6.2f}", *times, f" {len(console)} lines", *lines)
            is_bad |= painted_s > LIMIT_S or bool(console)
    browser.process.terminate()
    browser.process.wait()
    return int(is_bad)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        sys.exit(main([Path(one) for one in sys.argv[1:]] or make_pages(Path(made))))
