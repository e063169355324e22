"""The page of `qkv lab` in a browser: Debian's Chromium, driven by Playwright."""

import json
import math
import os
import pathlib
import shutil
import subprocess

import pytest
from playwright.sync_api import sync_playwright

PATIENCE = 300_000  # milliseconds; tests run side by side on few cores
SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("page")
    subprocess.run([os.environ["QKV_WRITE_SAMPLE_PAGE"], str(path)], check=True)
    return path


@pytest.fixture(scope="session")
def results(folder):
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))["experiments"][0]


@pytest.fixture(scope="session")
def browser():
    program = shutil.which("chromium")
    assert program, "chromium is not installed: run tools/setup.sh"
    with sync_playwright() as playwright:
        # Root has no sandbox.
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"], timeout=PATIENCE
        )
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, folder):
    """visit(hash, **context) opens the page; whatever it complains of or asks the network for fails the test."""
    complaints = []
    contexts = []

    def open_page(fragment="", context=None, **options):
        if context is None:
            options.setdefault("viewport", {"width": 1280, "height": 900})
            context = browser.new_context(locale=options.pop("locale", "en-US"), **options)
            context.set_default_timeout(PATIENCE)
            contexts.append(context)
        page = context.new_page()
        url = (folder / "index.html").as_uri()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.append(request.url) if request.url != url else None)
        page.goto(url + fragment)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def map_of(page, key):
    return page.locator(f'figure[data-key="{key}"]')


def test_opens_with_every_experiment(visit):
    page = visit()
    assert page.title() == "qkv lab: Attention, experiment by experiment"
    assert page.locator("section").evaluate_all("all => all.map(s => s.id)") == ["everything", "little"]
    assert page.locator("nav .count").all_inner_texts() == ["1/2"]
    assert page.locator(".effects .mark").all_inner_texts() == ["✓ holds", "✗ not seen"]
    assert page.locator("#everything .seen code").all_inner_texts() == ["numbers"]


def test_tables_show_the_results(visit):
    page = visit()
    rows = page.locator('table[data-key="numbers"] tr').evaluate_all(
        "rows => rows.map(row => [...row.children].map(cell => cell.innerText.replace(/\\s+/g, ' ')))"
    )
    assert rows == [
        ["case", "time (ms)", "parameters", "verdict"],
        ["plain", "0.25", "1,234,567", "works"],
        ["</script>", "2 1.5 – 2.5", "0", "breaks"],
        ["none", "∞", "−7", "is no number"],
    ]


def drawn_points(page):
    """(series, is a band, points) of each line that Chart.js draws; what is no number is null."""
    return page.locator('canvas[data-key="curves"]').evaluate(
        "canvas => Chart.getChart(canvas).data.datasets.map(d => [d.seriesIndex, Boolean(d.isBand), d.data])"
    )


def test_charts_show_the_numbers_of_the_results(visit, results):
    chart = results["charts"][0]

    def points(series, ys):
        pairs = zip(chart["series"][series]["x"], chart["series"][series][ys])
        numbers = [(x, SPECIAL.get(y, y)) for x, y in pairs]
        return [{"x": x, "y": y} for x, y in numbers if not y <= 0]

    page = visit()
    drawn = drawn_points(page)
    assert drawn[:3] == [[0, True, points(0, "low")], [0, True, points(0, "high")], [0, False, points(0, "y")]]
    last = drawn[3]
    assert last[:2] == [1, False]
    assert [point["x"] for point in last[2]] == [1, 16, 64]
    assert [point["y"] for point in last[2]][::2] == [1, 3] and math.isnan(last[2][1]["y"])
    scales = page.locator('canvas[data-key="curves"]').evaluate(
        "canvas => Object.values(Chart.getChart(canvas).scales).map(s => [s.axis, s.type, s.options.title.text])"
    )
    assert scales == [["x", "logarithmic", "width Dk"], ["y", "logarithmic", "loss"]]
    assert "1 point is not drawn" in page.locator(".note").inner_text()


def show_numbers_of_chart(page):
    page.get_by_text("Numbers of this chart").click()
    page.locator('table[data-key="curves-numbers"]').wait_for()


def test_numbers_of_a_chart_stand_behind_it(visit):
    page = visit()
    show_numbers_of_chart(page)
    rows = page.locator('table[data-key="curves-numbers"] tbody tr')
    assert rows.count() == 8
    first = rows.first.inner_text().split()
    assert first == ["with", "a", "spread", "1", "8", "6", "–", "10"]


def test_a_curve_can_be_hidden(visit):
    page = visit()
    button = page.get_by_role("button", name="with a spread")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    visible = "canvas => [0, 1, 2, 3].map(i => Chart.getChart(canvas).isDatasetVisible(i))"
    assert page.locator('canvas[data-key="curves"]').evaluate(visible) == [False, False, False, True]


def test_points_of_a_chart_are_told_by_keys(visit):
    page = visit()
    canvas = page.locator('canvas[data-key="curves"]')
    told = page.locator("figure", has=canvas).locator("[aria-live]")
    canvas.focus()
    page.keyboard.press("ArrowRight")
    assert told.inner_text() == "width Dk 1, with a spread: 8"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert told.inner_text() == "width Dk 16, bare: NaN"


def test_heat_maps_tell_the_cell_under_the_pointer(visit):
    page = visit()
    figure = map_of(page, "maps")
    box = figure.locator("canvas").nth(1).bounding_box()
    page.mouse.move(box["x"] + box["width"] - 8, box["y"] + box["height"] - 8)
    assert figure.locator(".readout").inner_text() == (
        "query 3 “sat” → key 4 “.”: right 34 (hidden by the mask) · off by one 20034"
    )
    page.mouse.move(2, 2)
    assert figure.locator(".readout").inner_text().startswith("Point at a cell")


def test_heat_maps_are_walked_by_keys(visit):
    page = visit()
    figure = map_of(page, "maps")
    figure.locator("canvas").first.focus()
    for key in ["ArrowDown", "ArrowRight"]:
        page.keyboard.press(key)
    told = figure.locator(".readout").inner_text
    assert told() == "query 1 “cat” → key 1 “cat”: right 11 · off by one NaN"
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    assert told() == (
        "query 1 “cat” → key 4 “.”: right 14 (hidden by the mask) · off by one 20014 (hidden by the mask)"
    )


def test_heat_maps_show_the_chosen_layer_sample_and_head(visit):
    page = visit()
    figure = map_of(page, "maps")
    for name, value in [("Layer", "1"), ("Sample", "1"), ("Head", "2")]:
        figure.get_by_label(name).select_option(value)
    figure.locator("canvas").first.focus()
    page.keyboard.press("ArrowDown")
    assert "right 11210 · off by one 31210" in figure.locator(".readout").inner_text()
    assert "31234" in figure.locator(".heat-legend").inner_text()


def test_heat_maps_stand_side_by_side_or_alone(visit):
    page = visit()
    figure = map_of(page, "maps")
    panels = figure.locator(".panel")
    boxes = [panel.bounding_box() for panel in panels.all()]
    assert boxes[0]["y"] == boxes[1]["y"]
    figure.get_by_label("Beside it").select_option(label="nothing")
    assert [panel.is_visible() for panel in panels.all()] == [True, False]
    figure.get_by_label("Shown").select_option(label="off by one")
    assert figure.locator(".panel-title").first.inner_text() == "off by one"


def test_heat_maps_start_where_they_are_told_to(visit):
    page = visit()
    figure = map_of(page, "started")
    assert figure.locator(".panel-title").all_inner_texts() == ["second", "first"]
    assert figure.locator("select[name=head]").input_value() == "1"
    figure.locator("canvas").first.focus()
    page.keyboard.press("Home")
    assert figure.locator(".readout").inner_text() == "query 0 → key 0: second 4 · first 2"


def test_tokens_have_the_colours_of_their_scores(visit):
    page = visit()
    figure = map_of(page, "tokens")
    spans = figure.locator(".token-row").first.locator(".token")
    assert spans.all_inner_texts() == ["the", "<b>", "sat"]
    assert spans.evaluate_all("all => all.map(s => s.title)") == ["the: 0", "<b>: 2", "sat: −1"]
    colours = spans.evaluate_all("all => all.map(s => s.style.background)")
    assert ["45%" in colours[1], "23%" in colours[2], "series-2" in colours[2]] == [True, True, True]
    figure.get_by_text("Scores of these tokens").click()
    rows = figure.locator('table[data-key="tokens-numbers"] tbody tr')
    assert rows.nth(2).inner_text().split() == ["sat", "−1", "0"]


def test_what_was_not_there_is_said(visit):
    page = visit()
    assert page.locator("#everything .missed").inner_text() == "This time 1 of 2 was not there: see ✗ above."
    assert page.locator("#little .missed").count() == 0


def test_the_mask_is_hatched_on_request(visit):
    page = visit()
    figure = map_of(page, "maps")
    picture = "canvas => canvas.toDataURL()"
    before = figure.locator("canvas").first.evaluate(picture)
    figure.get_by_label("Hatch what the mask hides").uncheck()
    assert figure.locator("canvas").first.evaluate(picture) != before
    assert "hidden" not in figure.locator(".heat-legend").inner_text()


def test_a_question_comes_before_its_maps(visit):
    page = visit()
    figure = map_of(page, "asked")
    assert figure.locator("canvas").first.is_hidden() and figure.get_by_text("The last one.").is_hidden()
    assert figure.get_by_text("Which cell is the largest?").is_visible()
    figure.get_by_role("button", name="Show the maps").press("Enter")
    assert figure.locator("canvas").first.is_visible() and figure.get_by_text("The last one.").is_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    assert figure.locator(".readout").inner_text() == "query 1 → key 2: 3"


def test_the_language_is_switched_and_remembered(visit):
    page = visit()
    page.get_by_role("button", name="切换到中文").click()
    html = page.locator("html")
    assert html.get_attribute("lang") == "zh-Hans"
    assert page.locator("h1").inner_text() == "注意力机制：逐个实验"
    assert page.locator("#everything h2").inner_text().endswith("样样都有")
    assert page.locator('table[data-key="numbers"] td').nth(3).inner_text() == "正常"
    chart = page.locator('canvas[data-key="curves"]')
    assert chart.evaluate("c => Chart.getChart(c).options.scales.x.title.text") == "宽度 Dk"
    assert chart.evaluate("c => Chart.getChart(c).data.datasets.map(d => d.label)")[3] == "无区间"
    assert map_of(page, "maps").locator(".panel-title").first.inner_text() == "正确"
    again = visit(context=page.context)
    assert again.locator("html").get_attribute("lang") == "zh-Hans"
    by_hash = visit("#en/little", context=page.context)
    assert by_hash.locator("html").get_attribute("lang") == "en"


def test_the_language_of_the_browser_comes_first(visit):
    assert visit(locale="zh-CN").locator("html").get_attribute("lang") == "zh-Hans"
    assert visit("#zh").locator("html").get_attribute("lang") == "zh-Hans"


def background(page):
    return page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")


def test_colours_follow_the_system_or_the_switch(visit):
    page = visit(color_scheme="dark")
    dark = background(page)
    canvas = map_of(page, "maps").locator("canvas").first
    picture = canvas.evaluate("canvas => canvas.toDataURL()")
    page.get_by_label("Colours").select_option("light")
    assert background(page) != dark
    assert canvas.evaluate("canvas => canvas.toDataURL()") != picture
    again = visit(context=page.context)
    assert background(again) != dark


def test_a_phone_has_nothing_to_scroll_sideways(visit):
    page = visit(viewport={"width": 360, "height": 740})
    map_of(page, "asked").get_by_role("button").click()
    show_numbers_of_chart(page)
    for _ in range(2):
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        canvases = [canvas.bounding_box() for canvas in page.locator("canvas:visible").all()]
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= 360 for box in canvases)
        page.locator("#language").click()


def test_paper_shows_everything_in_light_colours(visit):
    page = visit(color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert background(page) == "rgb(253, 253, 252)"
    assert map_of(page, "asked").locator("canvas").first.is_visible()
    assert page.locator(".controls").first.is_hidden() and page.locator("nav").is_hidden()
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_everything_that_takes_a_key_has_a_name(visit):
    page = visit()
    nameless = page.locator("button, select, input, canvas:visible, summary, [role=region]").evaluate_all(
        """all => all.filter(element => !(element.getAttribute('aria-label') || element.labels?.length
             || element.textContent.trim())).map(element => element.outerHTML)"""
    )
    assert nameless == []
    levels = page.locator("h1, h2, h3").evaluate_all("all => all.map(h => Number(h.tagName[1]))")
    assert levels[0] == 1 and all(after - before <= 1 for before, after in zip(levels, levels[1:]))


def test_tab_reaches_what_a_pointer_reaches(visit):
    page = visit()
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.name || document.activeElement.tagName"))
    assert reached[:3] == ["skip", "language", "theme"]
    assert {"layer", "sample", "head", "shown", "beside", "mask", "CANVAS", "SUMMARY", "BUTTON"} <= set(reached)


def test_a_hash_leads_to_its_experiment(visit):
    page = visit("#zh/little", viewport={"width": 1280, "height": 300})
    top = page.locator("#little").bounding_box()["y"]
    assert -50 < top < 290
