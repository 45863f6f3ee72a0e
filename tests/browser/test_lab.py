"""Every explorable in a fresh JupyterLab, and a chapter as a reader opens it: run all cells, move every slider."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tinyllm.explore import acceptance, draft_shape, overlap, pass_cost, round_player
from tinyllm.explore.shell import Explorable

ROOT = Path(__file__).parents[2]
CHAPTER = "12-how-fast"
TWINS: dict[str, Any] = {
    "acceptance": acceptance.widget,
    "overlap": overlap.widget,
    "round_player": round_player.widget,
    "draft_shape": draft_shape.widget,
    "pass_cost": pass_cost.widget,
}


def open_widget(lab: Any, page: Any, name: str) -> Any:
    """A notebook of one cell with an explorable, opened and run: the part of the page that is the explorable."""
    cell = nbformat.v4.new_code_cell(f"from tinyllm.explore import {name}\n\n{name}.widget()")
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    notebook = nbformat.v4.new_notebook(cells=[cell], metadata={"kernelspec": kernel})
    nbformat.write(notebook, lab.notebooks / f"{name}.ipynb")
    lab.open(page, f"{name}.ipynb")
    lab.run_all(page)
    page.wait_for_selector(".jp-OutputArea-output .widget-box")
    return page.locator(".jp-Notebook .jp-OutputArea-output").last


def said_at(twin: Explorable, state: dict[str, Any]) -> str:
    """What an explorable says in a state, without drawing it."""
    try:
        return twin._in_words(**state)
    except ValueError as fault:
        return str(fault)


def wait_for_words(page: Any, words: str, what: object) -> None:
    """Wait until these words stand under the picture, which is replaced together with them."""
    shown = page.locator(".tinyllm-words")
    for _ in range(100):
        if shown.text_content() == words:
            break
        time.sleep(0.1)
    assert shown.text_content() == words, what
    assert page.locator("img.tinyllm-picture").get_attribute("alt") == words


@pytest.mark.parametrize("name", TWINS)
def test_an_explorable_moves_by_mouse_and_by_keyboard(lab: Any, watch: Any, name: str) -> None:
    """Every control is reached both ways, the picture and its words follow, and the output stays as high as it is.

    KIND: smoke, differential.
    """
    watched = watch()
    page = watched.page
    output = open_widget(lab, page, name)
    twin = TWINS[name]()
    state = dict(twin.state)
    wait_for_words(page, said_at(twin, state), "at first")
    height = output.bounding_box()["height"]
    moved = 0
    for control in twin._controls:
        row = output.locator(".widget-inline-hbox", has=page.locator(f'label:text-is("{control.label}")'))
        if row.count() == 0 or not row.first.is_visible():
            continue
        row = row.first
        before = output.locator("img.tinyllm-picture").get_attribute("src")
        if hasattr(control, "options"):
            row.locator(".noUi-handle").focus()
            for key, place in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", -1), ("ArrowLeft", -2)):
                page.keyboard.press(key)
                state[control.name] = control.options[place]
                wait_for_words(page, said_at(twin, state), (control.name, key))
                assert row.locator(".widget-readout").inner_text() == control.options[place]
            assert row.locator(".noUi-handle").evaluate("(handle) => handle === document.activeElement")
        else:
            handle, area = row.locator(".noUi-handle"), row.locator(".noUi-base").bounding_box()
            at = handle.bounding_box()
            page.mouse.move(at["x"] + at["width"] / 2, at["y"] + at["height"] / 2)
            page.mouse.down()
            page.mouse.move(area["x"] + 0.7 * area["width"], at["y"] + at["height"] / 2, steps=5)
            page.mouse.up()
            after_mouse = follow(page, twin, state, row, control)
            assert control.low < after_mouse < control.high
            handle.focus()
            page.keyboard.press("ArrowLeft")
            assert follow(page, twin, state, row, control) == pytest.approx(after_mouse - control.step)
        assert output.locator("img.tinyllm-picture").get_attribute("src") != before, f"{control.name} moves nothing"
        moved += 1
        if control.name != "n":  # which shows and hides the sliders of Overlap
            assert abs(output.bounding_box()["height"] - height) <= 2, f"the output grew when {control.name} moved"
        else:
            height = output.bounding_box()["height"]
    assert moved == sum(1 for c in twin._controls if not re.fullmatch(r"[pq]\d", c.name)) or name == "overlap"
    assert moved >= 1
    watched.picture(f"lab-{name}")


def follow(page: Any, twin: Explorable, state: dict[str, Any], row: Any, control: Any) -> float:
    """The number a slider came to; the words must be those of it. `state` is brought up to date."""
    shown = row.locator(".widget-readout").inner_text()
    value = int(shown) if isinstance(control.step, int) else float(shown)
    state[control.name] = value
    wait_for_words(page, said_at(twin, state), (control.name, value))
    return value


@pytest.mark.model
def test_live_streams_and_answers_in_place(lab: Any, watch: Any) -> None:
    """Text streams in colours, an empty prompt gets a sentence, Stop stops, and the kernel stays alive.

    KIND: smoke.
    """
    watched = watch((1280, 1100))
    page = watched.page
    output = open_widget(lab, page, "live")
    says = 'document.querySelector(".tinyllm-words").textContent'
    run, stop = (output.get_by_role("button", name=name, exact=True) for name in ("Run", "Stop"))
    run.click()
    page.wait_for_function(f"() => /^prompt lookup: [1-9].* tokens/.test({says})", timeout=60_000)
    assert output.locator('.tinyllm-text span[style*="background"]').count() > 0
    watched.picture("lab-live")
    page.wait_for_function(f"() => /^prompt lookup: 64 tokens/.test({says})", timeout=60_000)
    page.wait_for_function("(button) => button.disabled", arg=stop.element_handle(), timeout=60_000)
    output.locator("textarea").fill("")
    run.click()
    assert "The prompt is empty" in output.locator(".tinyllm-notice").inner_text()
    output.locator("textarea").fill("The capital of France is")
    run.click()
    page.wait_for_function("(button) => !button.disabled", arg=stop.element_handle(), timeout=60_000)
    stop.click()
    page.wait_for_function("(button) => button.disabled", arg=stop.element_handle(), timeout=60_000)
    assert output.locator(".tinyllm-notice").count() == 0
    page.wait_for_selector('.jp-Notebook-ExecutionIndicator[data-status="idle"]')


def test_a_chapter_runs_from_its_first_cell_to_its_last(lab: Any, watch: Any) -> None:
    """What a reader does first: open the chapter, run all cells, move a slider.

    KIND: smoke.
    """
    watched = watch()
    page = watched.page
    shutil.copyfile(ROOT / "book" / f"{CHAPTER}.ipynb", lab.notebooks / f"{CHAPTER}.ipynb")
    lab.open(page, f"{CHAPTER}.ipynb")
    lab.run_all(page)
    assert page.locator('[data-mime-type="application/vnd.jupyter.stderr"], .jp-RenderedError').count() == 0
    slider = page.locator(".tinyllm-explorable-live .noUi-handle").first
    slider.scroll_into_view_if_needed()
    before = page.locator(".tinyllm-words").first.text_content()
    slider.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("(old) => document.querySelector('.tinyllm-words').textContent !== old", arg=before)
    watched.picture(f"lab-{CHAPTER}")
