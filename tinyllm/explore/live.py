"""The Live explorable: SmolLM2 writes while you watch, each piece of text coloured by where it came from.

The model runs in a thread of its own, so the kernel goes on answering: it can be stopped after any round, and whatever
cannot be run (an empty prompt, a prompt that is too long, a second run, no model) is answered in place by a sentence.
`python -m tinyllm.explore.live` records the runs that a page without a kernel replays.
"""

from __future__ import annotations

import html
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import ipywidgets as widgets
from matplotlib.axes import Axes

from tinyllm import smollm2
from tinyllm.explore.figure import PALETTE, Canvas, new_figure, show
from tinyllm.explore.shell import LABEL, choice_widget, explorable_html, image_html, words_html
from tinyllm.explore.timing import machine
from tinyllm.infer.generate import Generation, IncrementalDecoder, Round
from tinyllm.infer.sample import SamplingParams
from tinyllm.infer.spec import DraftModel, PromptLookupDraft, speculative_generate
from tinyllm.zoo import smollm2 as load_smollm2
from tinyllm.zoo import why_not

PATH = Path(__file__).with_name("live.json")
DRAFTS = ("prompt lookup", "n-gram", "model")
PLAIN = "plain decoding"
REPLAYS = (("quoting", "prompt lookup"), ("plain prose", "n-gram"), ("list continuation", "model"))
COLOURS = {"kept": "kept draft", "correction": "correction", "bonus": "the target's own"}
BETWEEN = 0.1  # seconds between two updates of the page: a page that redraws takes time from the model
HEIGHT = 2.4  # of the picture, in inches


class Request(NamedTuple):
    """What is asked for."""

    prompt: str
    draft: str | None  # a name of DRAFTS; None is plain decoding
    k: int = 4
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int = 64


class Step(NamedTuple):
    """What one target pass gave."""

    seconds: float  # since the request began
    pieces: tuple[tuple[str, str], ...]  # text and origin: "kept", "correction" or "bonus"
    tokens: int
    drafted: int
    accepted: int


class Speed(NamedTuple):
    """What `compute` finds."""

    tokens: int
    passes: int
    per_second: float  # tokens after the first pass, which read the prompt; 0 until there is a second
    drafted: int
    accepted: int

    @property
    def rate(self) -> float:
        """Accepted over drafted; nan when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else float("nan")


def compute(steps: Sequence[Step]) -> Speed:
    """Tokens, passes, speed and acceptance of a request so far."""
    later, elapsed = sum(step.tokens for step in steps[1:]), steps[-1].seconds - steps[0].seconds if steps else 0.0
    return Speed(
        sum(step.tokens for step in steps),
        len(steps),
        later / elapsed if elapsed > 0 else 0.0,
        sum(step.drafted for step in steps),
        sum(step.accepted for step in steps),
    )


def in_words(name: str, steps: Sequence[Step]) -> str:
    """A request so far as a sentence; `name` is its draft, or plain decoding."""
    speed = compute(steps)
    kept = f"; {speed.accepted} of {speed.drafted} draft tokens kept ({speed.rate:.2f})" if speed.drafted else ""
    pace = f", {speed.per_second:.1f} tokens per second" if speed.passes > 1 else ""
    return (
        f"{name}: {speed.tokens} token{'' if speed.tokens == 1 else 's'} in {speed.passes} target "
        f"pass{'' if speed.passes == 1 else 'es'}{pace}{kept}."
    )


def compare(speculative: Sequence[Step], plain: Sequence[Step], greedy: bool) -> str:
    """What the two requests have in common and what not, as a sentence."""
    texts = ["".join(text for step in steps for text, _ in step.pieces) for steps in (speculative, plain)]
    ratio = compute(speculative).per_second / (compute(plain).per_second or float("inf"))
    if greedy:
        same = "The same text, as it must be" if texts[0] == texts[1] else "The texts differ, and they must not"
    else:
        same = "Two samples of the same distribution, so the texts may differ"
    return f"{same}; speculative decoding ran at {ratio:.2f} times the speed of plain decoding."


def draw(axes: Sequence[Axes], runs: Mapping[str, Sequence[Step]]) -> None:
    """Tokens over seconds, a line a run."""
    (ax,) = axes
    longest, most = 0.0, 1
    for (name, steps), colour in zip(runs.items(), ("kept", "prompt"), strict=False):
        counts = [sum(step.tokens for step in steps[: i + 1]) for i in range(len(steps))]
        seconds = [step.seconds for step in steps]
        ax.step([0, *seconds], [0, *counts], where="post", color=PALETTE[colour], label=name)
        longest, most = max([longest, *seconds]), max([most, *counts])
    ax.set(xlabel="seconds", ylabel="tokens", xlim=(0, 1.05 * longest or 1), ylim=(0, 1.1 * most))
    ax.legend(frameon=False, loc="upper left")


def picture(runs: Mapping[str, Sequence[Step]]) -> None:
    """Show `draw` with its words under it."""
    figure, axes = new_figure(height=HEIGHT)
    draw(axes, runs)
    show(figure, " ".join(in_words(name, steps) for name, steps in runs.items()))


# Running the model.


@dataclass
class _Follower:
    """Turns rounds into steps as they come, and says when to stop."""

    tok: Any
    on_step: Callable[[Step], Any]
    stopped: Callable[[], bool]
    started: float = field(default_factory=time.perf_counter)
    ended: bool = False

    def __post_init__(self) -> None:
        self._decoder = IncrementalDecoder(self.tok)

    def round(self, done: Round) -> bool:
        origins = ["kept"] * done.accepted + [done.kind]
        pieces = []
        for token, origin in zip(done.emitted, origins, strict=True):
            self.ended = self.ended or token == self.tok.eos_id
            if not self.ended:
                pieces.append((self._decoder.push(token), origin))
        self.on_step(
            Step(time.perf_counter() - self.started, tuple(pieces), len(pieces), len(done.draft), done.accepted)
        )
        return not self.stopped()


def follow(
    model: Any,
    tok: Any,
    draft: DraftModel | None,
    request: Request,
    on_step: Callable[[Step], Any],
    stopped: Callable[[], bool] = lambda: False,
) -> Generation:
    """Run a request, telling `on_step` what each target pass gave; `stopped` is asked after each.

    `draft` None is plain decoding. ValueError as for `speculative_generate`.
    """
    p = SamplingParams(temperature=request.temperature, seed=request.seed, max_tokens=request.max_tokens)
    used, k = (PromptLookupDraft(), 0) if draft is None else (draft, request.k)  # with k = 0 it is plain decoding
    follower = _Follower(tok, on_step, stopped)
    return speculative_generate(
        model, used, tok, request.prompt, p, k=k, eos_ids=(tok.eos_id,), on_round=follower.round
    )


@cache
def _model() -> tuple[Any, Any]:
    return load_smollm2()


def recorded() -> dict[str, Any]:
    """The stored runs: "where" they were made, and "replays", each with the steps of both ways of decoding."""
    found: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    return found


def record() -> dict[str, Any]:
    """Make the runs that a page without a kernel replays."""
    model, tok = _model()
    replays = []
    for text, name in REPLAYS:
        prompt = smollm2.requests(tok)[text]
        draft = smollm2.drafts(model, tok.encode(prompt))[name]
        kept: dict[str, list[Step]] = {}
        for way in (PLAIN, name) * 5:  # the fastest of five, as undisturbed as this machine ran it
            steps: list[Step] = []
            follow(model, tok, draft if way == name else None, Request(prompt, name), steps.append)
            if way not in kept or steps[-1].seconds < kept[way][-1].seconds:
                kept[way] = steps
        replays.append(
            {
                "name": f"{text}, {name}",
                "prompt": prompt,
                "draft": name,
                "k": Request(prompt, name).k,
                "steps": [step._asdict() for step in kept[name]],
                "plain": [step._asdict() for step in kept[PLAIN]],
                "words": f"{in_words(name, kept[name])} {in_words(PLAIN, kept[PLAIN])} "
                f"{compare(kept[name], kept[PLAIN], greedy=True)}",
            }
        )
    of = machine()
    return {"where": f"Recorded runs: SmolLM2 on {of['processor']}, {of['threads']} threads.", "replays": replays}


# The page.


def text_html(prompt: str, steps: Sequence[Step], title: str) -> str:
    """Prompt and text so far in a box of fixed height that scrolls, each piece on the colour of its origin."""
    spans = [f'<span style="color:#666">{html.escape(prompt)}</span>']
    for step in steps:
        for text, origin in step.pieces:
            spans.append(f'<span style="background:{PALETTE[origin]}55">{html.escape(text)}</span>')
    return (
        f'<b>{html.escape(title)}</b><div class="tinyllm-text" tabindex="0" style="height:170px;overflow-y:auto;'
        "display:flex;flex-direction:column-reverse;border:1px solid #ccc;padding:4px;line-height:1.5;background:white;"
        f'color:#111"><div style="white-space:pre-wrap">{"".join(spans)}</div></div>'
    )


def _legend() -> str:
    return " ".join(
        f'<span style="background:{PALETTE[origin]}55;padding:0 4px">{label}</span>'
        for origin, label in COLOURS.items()
    )


_busy = threading.Lock()  # one run at a time in this kernel, however many of these widgets it shows


def widget(prompt: str = smollm2.PROMPTS["quoting"]) -> Live:
    """Controls for a request, and the text that comes of it."""
    return Live(prompt)


class Live(widgets.VBox):
    """The widget. `run` starts a request in a thread, `stop` ends it after its round."""

    def __init__(self, prompt: str) -> None:
        wide = {"style": {"description_width": LABEL}, "layout": widgets.Layout(width="98%", max_width="560px")}
        self.inputs = {
            "prompt": widgets.Textarea(
                value=prompt, description="prompt", tooltip="what the model continues", rows=4, **wide
            ),
            "draft": choice_widget(DRAFTS, DRAFTS[0], "draft", "what guesses"),
            "k": widgets.IntSlider(4, 0, 16, description="k, draft tokens", tooltip="draft tokens per round", **wide),
            "temperature": widgets.FloatSlider(
                0.0, min=0.0, max=1.5, step=0.1, description="temperature", tooltip="0 is greedy", **wide
            ),
            "seed": widgets.BoundedIntText(0, 0, 2**31, description="seed", tooltip="of the random draws", **wide),
            "max_tokens": widgets.IntSlider(
                64, 1, 256, description="tokens at most", tooltip="the end, unless the model ends before", **wide
            ),
        }
        self.beside = widgets.Checkbox(description="then plain decoding, to compare", **wide)
        self.start = widgets.Button(description="Run", button_style="primary", tooltip="start the request")
        self.halt = widgets.Button(description="Stop", disabled=True, tooltip="end it after this round")
        self.bar = widgets.IntProgress(value=0, max=64, layout=widgets.Layout(width="180px"))
        self.notice = widgets.HTML()  # why a request was refused, which a run that is going on must not overwrite
        self.answer = widgets.HTML()
        self.texts = [widgets.HTML(text_html("", [], name)) for name in ("speculative decoding", PLAIN)]
        self._canvas = Canvas(height=HEIGHT)
        width, height = self._canvas.size
        self.shown = widgets.HTML(layout=widgets.Layout(width="98%", max_width=f"{width}px", min_height=f"{height}px"))
        self.beside.observe(lambda _change: self._place_for_plain(), names="value")
        self._place_for_plain()
        self._stop = threading.Event()
        self.start.on_click(lambda _button: self.run())
        self.halt.on_click(lambda _button: self.stop())
        self._say("Press Run, and SmolLM2 continues the prompt.")
        super().__init__(
            [
                *self.inputs.values(),
                self.beside,
                widgets.HBox([self.start, self.halt, self.bar]),
                self.notice,
                self.answer,
                widgets.HTML(_legend()),
                *self.texts,
                self.shown,
            ]
        )
        self.add_class("tinyllm-explorable-live")

    def run(self) -> threading.Thread | None:
        """Start the request that the controls describe; None, with the reason in place, when it cannot be started."""
        request = Request(**{name: control.value for name, control in self.inputs.items()})
        refusal = "The prompt is empty: write something for the model to continue." if not request.prompt else why_not()
        if refusal is None and not _busy.acquire(blocking=False):
            refusal = "A run is going on: wait for its end, or press Stop."
        self.notice.value = f'<p class="tinyllm-notice" role="alert">{html.escape(refusal)}</p>' if refusal else ""
        if refusal is not None:
            return None
        self._stop.clear()
        self.halt.disabled = False
        self.bar.value, self.bar.max = 0, request.max_tokens
        self.shown.value = ""
        for box, name in zip(self.texts, (str(request.draft), PLAIN), strict=True):
            box.value = text_html(request.prompt, [], name)
        self._say("Loading the model and preparing the draft.")
        thread = threading.Thread(target=self._run, args=(request, self.beside.value), daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        """End the request after the round it is in."""
        self._stop.set()

    def _place_for_plain(self) -> None:
        """Room for the second text while it is wanted; a run itself never changes the size of the output."""
        self.texts[1].layout.display = None if self.beside.value else "none"

    def _say(self, words: str) -> None:
        self.answer.value = words_html(words, self._canvas.size[0])

    def _run(self, request: Request, beside: bool) -> None:
        try:
            model, tok = _model()
            prompt_ids = tok.encode(request.prompt)
            if len(prompt_ids) > model.max_len:  # before the draft is prepared
                raise ValueError(f"the prompt has {len(prompt_ids)} tokens; this model takes at most {model.max_len}.")
            draft = smollm2.drafts(model, prompt_ids)[request.draft or DRAFTS[0]]
            name = str(request.draft)
            runs = {name: self._stream(model, tok, draft, request, 0)}
            if beside and not self._stop.is_set():
                runs[PLAIN] = self._stream(model, tok, None, request, 1)
            words = " ".join(in_words(name, steps) for name, steps in runs.items())
            if len(runs) == 2 and not self._stop.is_set():
                words += " " + compare(runs[name], runs[PLAIN], greedy=request.temperature == 0)
            if self._stop.is_set():
                words = f"Stopped. {words}"
            png = self._canvas.png(lambda axes: draw(axes, runs))
            self.shown.value = image_html(png, self._canvas.size, words)
            self._say(words)
        except Exception as fault:  # whatever it is, it is told where the reader looks, and the next run can start
            self._say(f"It did not run: {fault}")
        finally:
            self.halt.disabled = True
            _busy.release()

    def _stream(self, model: Any, tok: Any, draft: DraftModel | None, request: Request, place: int) -> list[Step]:
        """Run one way of decoding and keep its text box, bar and words up to date."""
        name = str(request.draft) if draft is not None else PLAIN
        steps: list[Step] = []
        last = 0.0

        def update() -> None:
            self.texts[place].value = text_html(request.prompt, steps, name)
            self.bar.value = compute(steps).tokens
            self._say(in_words(name, steps))

        def on_step(step: Step) -> None:
            nonlocal last
            steps.append(step)
            if step.seconds - last > BETWEEN:
                last = step.seconds
                update()

        follow(model, tok, draft, request, on_step, self._stop.is_set)
        update()
        return steps

    def fallback(self) -> str:
        """The HTML form, for a page without a kernel: recorded runs to replay."""
        found = recorded()
        choice = {
            "kind": "choice", "name": "run", "label": "recorded run", "means": "which run to replay",
            "options": [replay["name"] for replay in found["replays"]], "value": found["replays"][0]["name"],
        }  # fmt: skip
        return explorable_html("live", [choice], found, f"{found['where']} {found['replays'][0]['words']}")

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        return {**bundle, "text/plain": "Live: run this cell, and SmolLM2 writes here.", "text/html": self.fallback()}


def main() -> None:
    """Record and write the file."""
    PATH.write_text(json.dumps(record(), ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
