"""What all explorables share: labelled controls over one picture of fixed size, with the state in words under it.

A control is a slider or a choice; each has a label, a tooltip, steps, keyboard use and a number to read or type in.
Picture and words are replaced together, in place, so nothing flickers or grows. Where there is no kernel (the published
page), the same controls and the data behind them stand in the cell's output as JSON: see `Explorable`.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import ipywidgets as widgets

from tinyllm.explore.figure import PALETTE, Canvas

NOTE = "Run this cell, and the sliders appear here."  # until a script or a kernel takes over
LABEL = "150px"  # room for a label, so that the controls of all explorables line up


class Slider(NamedTuple):
    """A number moved in steps; whole numbers when all of its numbers are."""

    name: str  # the argument it sets
    label: str
    means: str  # the tooltip
    low: float
    high: float
    step: float
    value: float

    def widget(self) -> Any:
        """The slider in a notebook, with a number beside it that can be typed into."""
        whole = all(isinstance(number, int) for number in (self.low, self.high, self.step, self.value))
        made = widgets.IntSlider if whole else widgets.FloatSlider
        return made(
            value=self.value,
            min=self.low,
            max=self.high,
            step=self.step,
            description=self.label,
            tooltip=self.means,
            **({} if whole else {"readout_format": ".2f"}),
            style={"description_width": LABEL},
            layout=widgets.Layout(width="98%", max_width="560px"),
        )

    def as_json(self, value: Any) -> dict[str, Any]:
        """The slider as plain data, standing at `value`."""
        return {"kind": "slider", **self._asdict(), "value": value}


class Choice(NamedTuple):
    """One of several names."""

    name: str
    label: str
    means: str
    options: tuple[str, ...]
    value: str

    def widget(self) -> Any:
        """The choice in a notebook, by `choice_widget`."""
        return choice_widget(self.options, self.value, self.label, self.means)

    def as_json(self, value: Any) -> dict[str, Any]:
        """The choice as plain data, standing at `value`."""
        return {"kind": "choice", **self._asdict(), "options": list(self.options), "value": value}


Control = Slider | Choice


def choice_widget(options: Sequence[str], value: str, label: str, means: str) -> Any:
    """A slider over `options`, with the chosen one beside it.

    JupyterLab takes the up and down keys from a list to go from cell to cell; left and right reach a slider. A single
    option is a list, as a slider needs two ends.
    """
    made = widgets.SelectionSlider if len(options) > 1 else widgets.Dropdown
    return made(
        options=options,
        value=value,
        description=label,
        tooltip=means,
        style={"description_width": LABEL},
        layout=widgets.Layout(width="98%", max_width="560px"),
    )


def image_html(png: bytes, size: tuple[int, int], words: str) -> str:
    """The picture with `words` as its alternative text; `size` in pixels.

    Decoded together with the page's next frame, and of known size before that: no flicker, no jump.
    """
    width, height = size
    data = base64.b64encode(png).decode("ascii")
    return (
        f'<img class="tinyllm-picture" src="data:image/png;base64,{data}" alt="{html.escape(words)}" width="{width}" '
        f'height="{height}" decoding="sync" style="max-width:100%;height:auto;background:white">'
    )


def picture_html(png: bytes, size: tuple[int, int], words: str) -> str:
    """The picture, and the words under it."""
    return image_html(png, size, words) + words_html(words, size[0])


def words_html(words: str, width: int) -> str:
    """`words` as the paragraph under a picture, announced by screen readers when it changes."""
    return (
        f'<p class="tinyllm-words" role="status" style="max-width:{width}px;min-height:4.2em;line-height:1.4;'
        f'margin:4px 0">{html.escape(words)}</p>'
    )


def explorable_html(name: str, controls: Sequence[dict[str, Any]], data: Mapping[str, Any], words: str) -> str:
    """What a page without a kernel starts from: controls, palette and `data` as JSON, and the words.

    The same for the same arguments: keys are sorted, and no number is rounded.
    """
    held = {"name": name, "controls": list(controls), "data": dict(data), "palette": PALETTE}
    text = json.dumps(held, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    inside_script = text.replace("<", "\\u003c")  # no text of a token can end the element
    return (
        f'<div class="tinyllm-explorable" data-name="{html.escape(name)}">'
        f'<script type="application/json">{inside_script}</script><p>{html.escape(words)}</p>'
        f'<p class="tinyllm-note">{NOTE}</p></div>'
    )


class Explorable(widgets.VBox):
    """Controls over a picture and its words.

    `draw(axes, **state)` and `in_words(**state)` get the value of each control by its name. A ValueError of either is
    shown in place of the words, and the axes are empty. `data` is what a page without a kernel needs besides the state;
    such a page finds it in the "text/html" form of the widget, together with the controls.
    """

    def __init__(
        self,
        name: str,
        controls: Sequence[Control],
        draw: Callable[..., None],
        in_words: Callable[..., str],
        canvas: Canvas,
        data: Mapping[str, Any] | None = None,
        arrange: Callable[[dict[str, Any]], Sequence[Any]] | None = None,
    ) -> None:
        """`arrange` turns the controls, by name, into what stands above the picture; one below the other if None."""
        self._name, self._controls, self._data = name, list(controls), dict(data or {})
        self._draw, self._in_words, self._canvas = draw, in_words, canvas
        self.inputs = {control.name: control.widget() for control in controls}
        width, height = canvas.size
        self.shown = widgets.HTML(layout=widgets.Layout(width="98%", max_width=f"{width}px", min_height=f"{height}px"))
        self.redraw()
        for control in self.inputs.values():
            control.observe(self.redraw, names="value")
        above = arrange(self.inputs) if arrange else list(self.inputs.values())
        super().__init__([*above, self.shown])
        self.add_class("tinyllm-explorable-live")

    @property
    def state(self) -> dict[str, Any]:
        """The value of each control, by name."""
        return {name: control.value for name, control in self.inputs.items()}

    @property
    def words(self) -> str:
        """The state in words, or the sentence that says why there is none."""
        try:
            return self._in_words(**self.state)
        except ValueError as fault:
            return str(fault)

    def redraw(self, _change: Any = None) -> None:
        """Replace picture and words by those of the state as it is."""
        state = self.state
        try:
            png = self._canvas.png(lambda axes: self._draw(axes, **state))
        except ValueError as fault:
            png = self._canvas.png(lambda axes: None)
            self.shown.value = picture_html(png, self._canvas.size, str(fault))
        else:
            self.shown.value = picture_html(png, self._canvas.size, self.words)

    def fallback(self) -> str:
        """The HTML form, for a page without a kernel."""
        controls = [control.as_json(self.inputs[control.name].value) for control in self._controls]
        return explorable_html(self._name, controls, self._data, self.words)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        return {**bundle, "text/plain": self.words, "text/html": self.fallback()}
