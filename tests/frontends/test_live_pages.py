"""The live pages in headless Chromium: keyboard, link, phone, dark, cancel, and what is left."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

pytest.importorskip("nicegui")
sync = pytest.importorskip("playwright.sync_api")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no browser to open the pages in")
#: A busy machine takes long for what takes a second.
WAIT_MS = 300_000


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(port, temporary):
    words = (sys.executable, "-m", "accelsim.cli", "ui", "--no-browser", "--port", str(port))
    named = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment = named | {"TMPDIR": str(temporary)}
    process = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + WAIT_MS / 1000
    while process.poll() is None and time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process
        time.sleep(0.1)
    process.kill()
    raise AssertionError(process.communicate()[1])


@pytest.fixture(scope="module")
def temporary(tmp_path_factory):
    return tmp_path_factory.mktemp("ui")


@pytest.fixture(scope="module")
def address(temporary):
    port = free_port()
    process = start(port, temporary)
    yield f"http://127.0.0.1:{port}"
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_MS / 1000) == 143
    assert not list(temporary.glob("accelsim-ui-*"))


@pytest.fixture(scope="module")
def browser():
    with sync.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield made
        made.close()


@pytest.fixture
def page(browser):
    context = new_context(browser)
    yield context.new_page()
    context.close()


def new_context(browser, **options):
    context = browser.new_context(**options)
    context.set_default_timeout(WAIT_MS)
    return context


def answered(page, url):
    page.goto(url)
    page.wait_for_selector("table.metrics")
    return page.locator("table.metrics").inner_text()


def test_a_slider_moves_the_answer_and_its_link_restores_it(address, browser, page):
    first = answered(page, f"{address}/device?model=resnet-50&device=t4&batch=8")
    slider = page.get_by_role("slider", name="batch, powers of two").locator("[tabindex='0']")
    slider.press("ArrowRight")
    page.wait_for_url("**batch=16*")
    page.wait_for_function(
        "old => document.querySelector('table.metrics').innerText != old", arg=first
    )
    moved = page.locator("table.metrics").inner_text()
    assert moved != first
    assert "accelsim estimate resnet-50 --device t4 --batch 16" in page.inner_text("body")
    assert answered(new_context(browser).new_page(), page.url) == moved


def test_two_scenarios_stand_side_by_side_on_a_dark_phone(address, browser):
    phone = {"width": 390, "height": 800}
    context = new_context(browser, viewport=phone, color_scheme="dark")
    page = context.new_page()
    link = "model=resnet-50&device=t4&batch=8&b.model=resnet-50&b.device=l4&b.batch=8"
    shown = answered(page, f"{address}/device?{link}")
    assert shown.split("\n")[0].split("\t")[:3] == ["figure", "A", "B"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert "dark" in page.get_attribute("body", "class")
    context.close()


def test_a_tampered_link_is_told_and_the_rest_stays(address, page):
    link = "model=resnet-50&device=t4&batch=eight&bach=1"
    answered(page, f"{address}/device?{link}")
    told = page.inner_text("body")
    assert "batch = 'eight' is not allowed: expected a number" in told
    assert "Unknown option of the link 'bach'. Did you mean batch" in told
    assert "resnet-50 on t4" in told


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ("model=resnet-50&device=t44", "Did you mean t4"),
        ("model=/etc/x.yaml&device=t4", "outside of the folder"),
        ("model=resnet-50&device=t4&learned=/etc/passwd", "Unknown option of the link 'learned'"),
        ("model=resnet-50&device=t4&hub=1", "Unknown option of the link 'hub'"),
    ],
)
def test_what_is_refused_is_told_on_the_page(address, page, link, said):
    page.goto(f"{address}/device?{link}")
    page.get_by_role("alert").filter(has_text=said).wait_for()


def test_a_long_answer_can_be_ended(address, page):
    page.goto(f"{address}/serve?model=llama-3.1-8b&device=h100-sxm-80gb&rate=20&requests=60000")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_text("Ended; what was shown stays.").wait_for()


@pytest.mark.parametrize("question", ["train", "serve", "plan"])
def test_every_question_has_an_answer_to_start_from(address, page, question):
    answered(page, f"{address}/{question}")
    assert not page.get_by_role("alert").count()


def test_the_whole_page_has_the_timeline(address, page):
    answered(page, f"{address}/device?model=resnet-50&device=t4&batch=8")
    with page.context.expect_page() as opened:
        page.get_by_text("Timeline and all pictures").click()
    opened.value.wait_for_load_state()
    assert "Roofline" in opened.value.inner_text("body")


def test_only_this_machine_is_answered(address):
    asked = urllib.request.Request(f"{address}/device", headers={"Host": "elsewhere.example"})
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(asked)


def test_a_port_in_use_is_refused(run):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = run("ui", "--port", port, "--no-browser")
    assert refused.code == 2
    assert f"port = {port} is not allowed: expected a port that is free" in refused.err
