"""The HTML book in a real browser: complete without a network, and its sliders say what Python says."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tinyllm.explore import acceptance, draft_shape, live, overlap, pass_cost, recordings, round_player
from tinyllm.explore.shell import Explorable

ROOT = Path(__file__).parents[2]
PHONE = {"width": 390, "height": 844}
RUNS = [acceptance.Run("a draft", 4, 100, 60, 20, 3.125), acceptance.Run("another", 7, 90, 30, 25, 2.5)]
MADE: dict[str, Callable[[], Explorable]] = {
    "acceptance": lambda: acceptance.widget(RUNS),
    "overlap": lambda: overlap.widget([1 / 3, 1 / 3, 1 / 3], [0.6, 0.3, 0.1]),
    "round_player": round_player.widget,
    "draft_shape": draft_shape.widget,
    "pass_cost": pass_cost.widget,
}
# Formulas are set and fonts are there; a page without formulas has no MathJax.
SETTLED = "Promise.resolve(window.MathJax?.startup?.promise).then(() => document.fonts.ready).then(() => true)"
every_explorable = pytest.mark.parametrize("name", MADE)


# Pages ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def pages(built: Path) -> list[str]:
    """Every page that was built from prose or a notebook."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    found = [f"{name}.html" for name in (toc["root"], *(entry["file"] for entry in toc["chapters"]))]
    assert all((built / name).exists() for name in found)
    return found


def test_every_page_is_complete_without_a_network(pages: list[str], site: str, watch: Any) -> None:
    """A reader may be on a train, with a phone: fonts, formulas, pictures and scripts come with the page, and it fits.

    A solution in sight would spoil the exercise; one that does not open helps nobody. Each page is opened once for all
    of this. The fixture fails the test on a console error, a failed load or a request to another machine. KIND: smoke.
    """
    watched = watch()
    page = watched.page
    desktop = page.viewport_size
    folds = 0
    for name in pages:
        page.set_viewport_size(desktop)
        page.goto(f"{site}/{name}")
        page.evaluate(SETTLED)
        is_complete(page, name)
        for size, picture in ((desktop, watched.whole_picture), (PHONE, watched.picture)):
            page.set_viewport_size(size)
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 1, f"{name} is {wide} pixels wider than a window of {size['width']}"
            picture(f"site-{Path(name).stem}-{size['width']}")
        folds += are_folded_and_open(page, name)
    assert folds >= 6


def is_complete(page: Any, name: str) -> None:
    """Nothing on the page is missing."""
    seen = page.evaluate(
        """() => ({
            formulas: document.querySelectorAll("span.math, div.math").length,
            set: document.querySelectorAll("mjx-container").length,
            faulty: document.querySelectorAll("mjx-merror, .problematic").length,
            broken: [...document.images].filter((i) => i.complete && !i.naturalWidth).map((i) => i.src),
            undescribed: [...document.querySelectorAll("article img:not([alt])")].map((i) => i.src),
            waiting: document.querySelectorAll("div.tinyllm-explorable:not(.tinyllm-started)").length,
        })"""
    )
    assert seen["set"] >= seen["formulas"] and not seen["faulty"], f"{name}: formulas not set: {seen}"
    assert not seen["broken"] and not seen["undescribed"], f"{name}: pictures: {seen}"
    assert not seen["waiting"], f"{name}: an explorable did not start"


def are_folded_and_open(page: Any, name: str) -> int:
    """How many solutions and hints the page has: each is closed, a click opens it, and then no markup shows."""
    folds = page.evaluate(
        """() => [...document.querySelectorAll("article details")].map((fold) => {
            const found = {open: fold.open, closed: fold.offsetHeight, called: fold.querySelector("summary").innerText};
            fold.querySelector("summary").click();
            return {...found, opened: fold.offsetHeight};
        })"""
    )
    for fold in folds:
        assert not fold["open"], f"{name}: {fold['called']} is open from the start"
        assert fold["opened"] > fold["closed"] + 10, f"{name}: {fold['called']} does not open"
    text = page.locator("article").inner_text()
    assert "# Solution" not in page.locator("article .cell:not(.tag_hide-cell) pre").all_inner_texts(), name
    assert "<details" not in text and "$" not in re.sub(r"\S*\$\w+", "", text), f"{name} shows raw markup"
    if folds:  # the script clicked above; a mouse, which something may be in the way of, closes the first again
        page.locator("article details summary").first.click()
        assert not page.locator("article details").first.evaluate("(e) => e.open"), f"{name}: a click does nothing"
    return len(folds)


def test_no_page_names_another_machine_to_load_from(built: Path) -> None:
    """What is not requested today may be on the next click: no script, style, font or frame has an outside address.

    KIND: property.
    """
    found = []
    for page in built.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loads = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=[\"']((?:https?:)?//[^\"']+)", text)
        loads += [
            url for script in re.findall(r"<script\b[^>]*>([^<]+)", text) for url in re.findall(r"https?://\S+", script)
        ]
        found += [f"{page.name}: {url}" for url in loads]
    for style in built.rglob("*.css"):
        found += [
            f"{style.name}: {url}" for url in re.findall(r"url\([\"']?((?:https?:)?//[^)]+)", style.read_text("utf-8"))
        ]
    assert found == []


def test_links_inside_the_book_lead_somewhere(built: Path) -> None:
    """A link to a page, a heading or a file that is not there costs the reader their place.

    KIND: property.
    """
    found = []
    for page in built.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"<a\b[^>]*?\bhref=\"([^\"]+)\"", text):
            path, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:", path):
                continue
            there = (page.parent / path.partition("?")[0]).resolve() if path else page
            if not there.exists():
                found.append(f"{page.name}: {target} is not there")
            elif anchor and there.suffix == ".html":
                body = text if there == page else there.read_text(encoding="utf-8")
                if not re.search(rf'\b(?:id|name)="{re.escape(anchor)}"', body):
                    found.append(f"{page.name}: {target} has no such place")
    assert found == []


# Explorables ------------------------------------------------------------------------------------------------------


def open_explorable(watched: Any, html: str, built: Path, site: str) -> Any:
    """Open a page of the site that holds an explorable as Jupyter Book puts a cell's output there."""
    front = (built / "README.html").read_text(encoding="utf-8")
    place = front.index("</h1>", front.index("<article")) + len("</h1>")
    body = f'{front[:place]}<div class="cell_output">{html}</div>{front[place:]}'
    watched.page.route(
        f"{site}/try.html", lambda route: route.fulfill(body=body, content_type="text/html; charset=utf-8")
    )
    watched.page.goto(f"{site}/try.html")
    return watched.page


@pytest.fixture
def explorable(name: str, built: Path, site: str, watch: Any) -> Iterator[tuple[Any, Explorable, Any]]:
    """An explorable of the site: its page, its Python twin, its element. Left as the test left it, on two pictures."""
    twin = MADE[name]()
    watched = watch()
    place = open_explorable(watched, twin.fallback(), built, site).locator("div.tinyllm-explorable")
    yield watched, twin, place
    watched.picture(f"site-{name}-1280")
    watched.page.set_viewport_size(PHONE)
    place.scroll_into_view_if_needed()
    watched.picture(f"site-{name}-390")
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"] + 1


def words_of(place: Any) -> str:
    return str(place.locator(".tinyllm-words").inner_text())


def said_at(twin: Explorable, state: dict[str, Any]) -> str:
    """What the notebook's explorable says in a state, without the picture, which takes longer."""
    try:
        return twin._in_words(**state)
    except ValueError as fault:
        return str(fault)


def states(twin: Explorable, count: int) -> list[dict[str, Any]]:
    """States a reader can reach: the corners of each control, then `count` drawn ones."""
    draws = random.Random(4)
    found = []
    controls = [(control._asdict()) for control in twin._controls]
    for c in controls:
        for value in c["options"] if "options" in c else (c["low"], c["high"]):
            found.append({c["name"]: value})
    for _ in range(count):
        state = {}
        for c in controls:
            if "options" in c:
                state[c["name"]] = draws.choice(c["options"])
            else:
                steps = draws.randrange(round((c["high"] - c["low"]) / c["step"]) + 1)
                at = c["low"] + steps * c["step"]
                state[c["name"]] = at if isinstance(c["step"], int) else round(at, 2)
        found.append(state)
    return found


@every_explorable
def test_the_page_says_what_python_says_at_every_state(explorable: tuple[Any, Explorable, Any]) -> None:
    """Two programs compute the same numbers; a reader of the page must not learn other ones.

    KIND: differential.
    """
    watched, twin, place = explorable
    assert words_of(place) == twin.words
    asked = states(twin, 200)
    reached, wanted = dict(twin.state), []
    for state in asked:
        reached |= state
        wanted.append(said_at(twin, reached))
    said = watched.page.evaluate(
        """(states) => states.map((state) => {
            for (const [name, value] of Object.entries(state)) {
                const input = document.querySelector(`[data-control="${name}"]`).querySelector("input, select");
                input.value = value;
                input.dispatchEvent(new Event("input", { bubbles: true }));
            }
            return document.querySelector(".tinyllm-words").textContent;
        })""",
        asked,
    )
    wrong = [(state, w, s) for state, w, s in zip(asked, wanted, said, strict=True) if w != s]
    assert not wrong, f"{len(wrong)} of {len(asked)}, the first: {wrong[0]}"
    assert len(set(said)) > 10, "the words hardly change"


@every_explorable
def test_each_control_moves_by_mouse_and_by_keyboard(explorable: tuple[Any, Explorable, Any]) -> None:
    """A reader without a mouse, or without a steady hand, gets to every state, and sees the picture follow.

    KIND: smoke.
    """
    watched, twin, place = explorable
    page, state = watched.page, dict(twin.state)
    for control in twin._controls:
        line = place.locator(f'[data-control="{control.name}"]')
        if not line.is_visible():
            continue
        label = line.locator("label")
        assert label.inner_text() == control.label and line.get_attribute("title") == control.means
        box = line.locator("input, select").first
        assert page.evaluate("(e) => e.labels[0].textContent", box.element_handle()) == control.label
        if hasattr(control, "options"):
            box.focus()
            page.keyboard.press("ArrowDown")
            state[control.name] = box.input_value()
            assert words_of(place) == said_at(twin, state)
            continue
        before = place.locator(".tinyllm-picture").inner_html()
        height = place.bounding_box()["height"]
        number = line.locator('input[type="number"]')
        seen = []
        area = box.bounding_box()
        middle = area["y"] + area["height"] / 2
        page.mouse.move(area["x"] + area["width"] * 0.5, middle)
        page.mouse.down()
        page.mouse.move(area["x"] + area["width"] * 0.7, middle, steps=4)
        page.mouse.up()
        seen.append(number.input_value())
        for key in ("ArrowRight", "ArrowLeft", "ArrowLeft", "PageDown", "End", "Home", "ArrowUp"):
            box.press(key)
            value = number.input_value()
            seen.append(value)
            state[control.name] = int(value) if isinstance(control.step, int) else float(value)
            assert words_of(place) == said_at(twin, state), (control.name, key, value)
        assert float(seen[2]) == float(seen[0]) or float(seen[2]) == pytest.approx(float(seen[0]))
        assert float(seen[5]) == control.high and float(seen[6]) == control.low, seen
        assert float(seen[7]) == pytest.approx(control.low + control.step), seen
        number.fill(str(control.high + 99))
        number.press("Enter")
        assert float(number.input_value()) == control.high, "a number out of range stops at the end of it"
        state[control.name] = control.high
        assert words_of(place) == said_at(twin, state)
        assert place.locator(".tinyllm-picture").inner_html() != before, f"{control.name} moves nothing"
        if control.name != "n":
            assert abs(place.bounding_box()["height"] - height) < 1, f"the page jumps when {control.name} moves"


@pytest.mark.parametrize("name", ["acceptance"])
def test_the_acceptance_picture_stands_where_compute_says(explorable: tuple[Any, Explorable, Any]) -> None:
    """Words may be right beside a wrong picture: each mark carries its place, and that is compute()'s.

    KIND: differential.
    """
    _, _, place = explorable
    place.locator('[data-control="k"] input').first.press("ArrowRight")
    marks = place.evaluate("(e) => [...e.querySelectorAll('[data-what]')].map((m) => ({...m.dataset}))")
    at = {m["what"]: (float(m["x"]), float(m["y"])) for m in marks}
    now = acceptance.compute(0.8, 0.05, np.array([5]))
    lengths = acceptance.compute(0.8, 0.05, np.arange(17))
    best = acceptance.best_k(0.8, 0.05)
    assert at["tokens"] == (0.8, pytest.approx(now.tokens[0], rel=1e-14))
    assert at["rate"] == (0.8, pytest.approx(now.rate[0], rel=1e-14))
    assert at["speedup"] == (5, pytest.approx(now.speedup[0], rel=1e-14))
    assert at["best"] == (best, pytest.approx(lengths.speedup[best], rel=1e-14))
    curve = [float(m["y"]) for m in marks if m["what"] == "length"]
    np.testing.assert_allclose(curve, lengths.speedup, rtol=1e-14)
    assert "run" not in at, "no run has k 5"
    place.locator('[data-control="k"] input').first.press("ArrowLeft")
    assert place.locator('[data-what="run"]').count() == 2  # tokens and rate of the run with k 4


@pytest.mark.parametrize("name", ["overlap"])
def test_the_overlap_picture_stacks_to_p_and_q(explorable: tuple[Any, Explorable, Any]) -> None:
    """The shaded overlap with what only p has is p, and with what only q has is q; heights are those drawn.

    KIND: differential.
    """
    _, twin, place = explorable
    found = overlap.compute(
        [twin.inputs[f"p{i}"].value for i in range(3)], [twin.inputs[f"q{i}"].value for i in range(3)]
    )
    marks = place.evaluate(
        "(e) => [...e.querySelectorAll('[data-what]')].map((m) => ({...m.dataset, h: m.height.baseVal.value}))"
    )
    height = {
        what: np.array([m["h"] for m in marks if m["what"] == what])
        for what in ("both", "only p", "only q", "residual")
    }
    scale = height["residual"][found.residual > 0][0] / found.residual[found.residual > 0][0] / 1.4 * 1.05
    np.testing.assert_allclose(height["both"] / scale, found.shared, atol=1e-9)
    np.testing.assert_allclose((height["both"] + height["only p"]) / scale, found.p, atol=1e-9)
    np.testing.assert_allclose((height["both"] + height["only q"]) / scale, found.q, atol=1e-9)
    for i in range(3):
        place.locator(f'[data-control="q{i}"] input').first.press("Home")
    assert words_of(place).startswith("Every weight of q is 0")
    assert place.locator("svg[aria-label], svg > *").count() == 0, "something of the state before is left"


@pytest.mark.parametrize("name", ["draft_shape"])
def test_the_draft_shape_picture_has_a_point_where_reached_and_a_hollow_one_where_rarely(
    explorable: tuple[Any, Explorable, Any],
) -> None:
    """The words say how few rounds make a point hollow; the page must mean the same number.

    KIND: differential.
    """
    _, twin, place = explorable
    choices = {control.name: control.options for control in twin._controls}
    for draft in choices["draft"]:
        for text in choices["text"]:
            place.locator('[data-control="draft"] select').select_option(draft)
            place.locator('[data-control="text"] select').select_option(text)
            found = draft_shape.compute(draft_shape.select(recordings.runs(), text, draft))
            few = (found.reached > 0) & (found.reached < draft_shape.FEW)
            marks = place.evaluate("(e) => [...e.querySelectorAll('[data-what]')].map((m) => ({...m.dataset}))")
            for what, wanted in (("share", found.reached > 0), ("hollow", few)):
                at = [int(m["x"]) - 1 for m in marks if m["what"] == what]
                assert at == np.flatnonzero(wanted).tolist(), (what, draft, text)


def test_live_replays_its_recorded_runs_and_says_so(built: Path, site: str, watch: Any) -> None:
    """There is no model in a page: what streams there is a recording, and must not pass for more.

    KIND: smoke.
    """
    watched = watch()
    page = open_explorable(watched, live.widget().fallback(), built, site)
    recorded = live.recorded()
    for replay in recorded["replays"]:
        page.locator('[data-control="run"] select').select_option(replay["name"])
        assert page.locator(".tinyllm-words").inner_text() == f"{recorded['where']} {replay['words']}"
        assert recorded["where"].startswith("Recorded")
        texts = page.locator(".tinyllm-stack .tinyllm-text:not(.tinyllm-room)")
        for place, side in enumerate(("steps", "plain")):
            whole = replay["prompt"] + "".join(text for step in replay[side] for text, _ in step["pieces"])
            assert (texts.nth(place).text_content() or "").replace("↵\n", "\n").replace("→", "\t") == whole
    full = texts.first.text_content() or ""
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("() => document.querySelector('.tinyllm-buttons button').textContent === 'Pause'")
    page.wait_for_function(  # the first step is drawn a moment after the button changes
        "n => document.querySelector('.tinyllm-stack .tinyllm-text:not(.tinyllm-room)').textContent.length < n",
        arg=len(full),
        polling=20,
    )
    watched.picture("site-live-1280")
    page.wait_for_function("() => document.querySelector('.tinyllm-buttons button').textContent === 'Play'")
    assert texts.first.text_content() == full


@pytest.mark.parametrize("name", ["round_player"])
def test_the_round_player_plays_and_steps_and_shows_every_token_and_cell(
    explorable: tuple[Any, Explorable, Any],
) -> None:
    """The replay is the only place where a reader watches a cache being cut back.

    KIND: differential.
    """
    _, twin, place = explorable
    moments = round_player.compute(round_player.recorded())
    number = place.locator('input[type="number"]')
    place.get_by_role("button", name="Step").click()
    assert number.input_value() == "1"
    place.get_by_role("button", name="Back").click()
    assert number.input_value() == "0"
    for step in (0, 2, 11, len(moments) - 1):
        number.fill(str(step))
        number.press("Enter")
        seen = place.evaluate(
            """(e) => ({
                origins: [...e.querySelectorAll("[data-origin]")].map((t) => t.dataset.origin).join(""),
                cells: [...e.querySelectorAll("[data-cell]")].map((c) => c.dataset.cell).join(""),
                pending: e.querySelectorAll(".tinyllm-token.tinyllm-pending").length,
                passes: [...e.querySelectorAll("[data-what]")].map((bar) => Number(bar.dataset.x)),
            })"""
        )
        moment = moments[step]
        wanted = {"origins": "".join(origin for _, origin in moment.tokens), "cells": moment.cells}
        assert seen == wanted | {"pending": moment.pending, "passes": [moment.passes, moment.plain]}, step
        assert words_of(place) == said_at(twin, {"step": step})
        assert place.locator(".tinyllm-caption").inner_text() == round_player._cache_title(moment)
    place.get_by_role("button", name="Play").click()  # at the end, so from the start
    place.page.wait_for_function("() => document.querySelector('.tinyllm-control input').value === '1'")
    place.get_by_role("button", name="Pause").click()
    assert place.get_by_role("button", name="Play").is_visible()
