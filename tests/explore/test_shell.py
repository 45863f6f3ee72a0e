"""What the explorables share: fast pictures that are the same as slow ones, controls, and the form without a kernel."""

import html
import io
import json
import re

import numpy as np
import pytest
from PIL import Image

from tinyllm.explore import acceptance, draft_shape, overlap, pass_cost, round_player
from tinyllm.explore.figure import FRAME, PALETTE, Canvas
from tinyllm.explore.shell import Choice, Explorable, Slider

WIDGETS = {
    "acceptance": acceptance.widget,
    "overlap": overlap.widget,
    "round_player": round_player.widget,
    "draft_shape": draft_shape.widget,
    "pass_cost": pass_cost.widget,
}


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=int)


def test_a_canvas_keeps_frames_and_no_drawing() -> None:
    """Drawing one thing after another gives, pixel for pixel, what a new canvas gives: limits, ticks and frames return.

    KIND: property.
    """
    def curve(power: int, top: int) -> object:
        def draw(axes: list) -> None:
            for ax in axes:
                ax.plot([0, 1], [0, power])
                ax.text(0.5, 0.5, f"framed {top}", gid=FRAME)
                ax.bar([0.5], [power])
                ax.set(xlim=(0, 1), ylim=(0, top), xlabel="x", title=f"to the {power}")
        return draw

    one = Canvas(columns=2)
    first = one.png(curve(1, 4))
    for power, top in ((2, 4), (3, 4), (2, 8)):
        one.png(curve(power, top))
    assert len(one._frames) == 2
    assert one.png(curve(1, 4)) == first == Canvas(columns=2).png(curve(1, 4))
    assert pixels(first).shape[:2] == one.size[::-1]
    assert np.abs(pixels(first) - pixels(one.png(curve(2, 4)))).max() > 100


def test_a_canvas_does_not_hold_more_frames_than_it_is_told() -> None:
    """A slider moves through any number of limits, and each frame is a megabyte.

    KIND: boundary.
    """
    canvas = Canvas(hold=3)
    for top in range(1, 9):
        canvas.png(lambda axes, top=top: axes[0].set(ylim=(0, top)))
    assert len(canvas._frames) <= 3


@pytest.mark.parametrize("name", WIDGETS)
def test_every_control_has_a_label_a_tooltip_steps_and_a_number(name: str) -> None:
    """A slider that cannot be read, typed into or moved by keys is closed to some readers.

    KIND: property.
    """
    shown = WIDGETS[name]()
    for control in shown.inputs.values():
        assert control.description and control.tooltip
        if hasattr(control, "step"):
            assert control.step > 0 and control.readout and not control.disabled


@pytest.mark.parametrize("name", WIDGETS)
def test_picture_and_words_are_replaced_together_at_a_fixed_size(name: str) -> None:
    """One message carries both, so that they never disagree; the size is said before the picture is decoded.

    KIND: property.
    """
    shown = WIDGETS[name]()
    seen: list[str] = []
    shown.shown.observe(lambda change: seen.append(change["new"]), names="value")
    control = next(iter(shown.inputs.values()))
    control.value = control.options[-1] if hasattr(control, "options") else control.max
    assert len(seen) == 1
    width, height = re.search(r'width="(\d+)" height="(\d+)"', seen[0]).groups()
    assert (int(width), int(height)) == shown._canvas.size and 'decoding="sync"' in seen[0]
    words = html.escape(shown.words)
    assert f'alt="{words}"' in seen[0] and 'role="status"' in seen[0] and seen[0].count(words) == 2


@pytest.mark.parametrize("name", WIDGETS)
def test_the_form_without_a_kernel_is_complete_and_the_same_every_time(name: str) -> None:
    """It is stored in the notebook: the name, the controls as they stand, the palette, the data, the words.

    KIND: property.
    """
    shown = WIDGETS[name]()
    bundle = shown._repr_mimebundle_()
    made = bundle["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in bundle and made == WIDGETS[name]().fallback()
    assert made.startswith(f'<div class="tinyllm-explorable" data-name="{name}"><script type="application/json">')
    inside = made.split(">", 2)[2].split("</script>")[0]
    found = json.loads(inside, parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))
    assert "<" not in inside and found["palette"] == PALETTE and found["name"] == name
    assert {control["name"]: control["value"] for control in found["controls"]} == shown.state
    assert f"<p>{html.escape(shown.words)}</p>" in made and bundle["text/plain"] == shown.words


def test_a_choice_moves_by_the_keys_that_jupyterlab_leaves_to_it() -> None:
    """A slider over the names; a single name, which would be a slider without length, stays a list.

    KIND: boundary.
    """
    several = Choice("name", "name", "a name", ("a", "b", "c"), "b")
    assert (several.widget()._view_name, several.widget().value) == ("SelectionSliderView", "b")
    single = Choice("name", "name", "a name", ("a",), "a")
    assert (single.widget()._view_name, single.widget().value) == ("DropdownView", "a")
    assert [made.as_json("a")["kind"] for made in (several, single)] == ["choice"] * 2


def test_what_cannot_be_drawn_is_said_in_place_of_the_words() -> None:
    """And text from outside cannot end the element that holds the data.

    KIND: boundary.
    """
    def draw(axes: list, n: int, name: str) -> None:
        if n == 2:
            raise ValueError("n is 2 <and that is refused>.")
        axes[0].plot([0, n], [0, 1])

    shown = Explorable(
        "odd",
        [Slider("n", "n", "a number", 0, 3, 1, 1), Choice("name", "name", "a name", ("a", "b"), "a")],
        draw,
        lambda n, name: draw([Canvas().axes[0]], n, name) or f"{n} {name}",
        Canvas(),
        {"text": "</script><b>"},
    )
    assert "</script><b>" not in shown.fallback() and "\\u003c/script>\\u003cb>" in shown.fallback()
    shown.inputs["n"].value = 2
    assert "n is 2 &lt;and that is refused&gt;." in shown.shown.value and shown.words.startswith("n is 2 <and")
    shown.inputs["name"].value = "b"
    shown.inputs["n"].value = 3
    assert shown.words == "3 b"
