"""The Round player: a generation step by step, with what each round writes to the KV cache and cuts off again.

A round has three moments: the draft proposes; one target pass writes the pending tokens and the draft to the cache; the
verdict keeps a part, adds the target's own token, and truncates (`tinyllm.infer.spec.speculative_generate`). Everything
shown follows from `Generation.rounds`, so any generation can be replayed, plain decoding too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import ipywidgets as widgets
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.font_manager import findfont, get_font

from tinyllm.explore import recordings
from tinyllm.explore.figure import FRAME, PALETTE, Canvas, new_figure, show
from tinyllm.explore.shell import Explorable, Slider
from tinyllm.infer.generate import Generation
from tinyllm.tok.base import TextCodec

RECORDED = ("quoting", "n-gram")  # a text that repeats its prompt, then departs from it: all that can happen happens
PHASES = ("draft", "pass", "verdict")

# A letter for the origin of each token, and its colour.
ORIGINS = {
    "p": ("prompt", "prompt"),
    "k": ("kept draft", "kept"),
    "c": ("correction", "correction"),
    "b": ("bonus", "bonus"),
    "d": ("draft", "draft"),
    "r": ("rejected", "rejected"),
}
# A letter for the state of each position of the cache.
CELLS = {
    "h": ("held from before", "prompt"),
    "w": ("written", "draft"),
    "k": ("written and kept", "kept"),  # drafts and what was pending
    "x": ("truncated", "rejected"),
}
COLUMNS, LINES, HEIGHT = 87, 9, 3.9  # characters and lines of text in the picture, and inches
MONOSPACE = 8.7  # points: a character is then as wide as a column, 8 pixels
SECONDS = 1.2  # a step, when it plays by itself


class Moment(NamedTuple):
    """One step of the replay."""

    round: int  # from 1
    rounds: int
    phase: str  # "draft", "pass" or "verdict"
    tokens: tuple[tuple[int, str], ...]  # id and letter of ORIGINS, in the order of the text
    cells: str  # a letter of CELLS for each position of the cache
    pending: int  # how many known tokens are not in the cache yet
    drafted: int  # tokens that this round's draft proposes
    accepted: int  # of them kept; known from the verdict on, but always given
    passes: int  # target passes so far
    plain: int  # passes that plain decoding needs for the tokens written so far


def recorded() -> Generation:
    """A stored generation of SmolLM2: the quoting request with the n-gram draft, greedy."""
    return recordings.runs()[RECORDED]


def compute(generation: Generation) -> list[Moment]:
    """Every moment of the replay, three a round.

    ValueError for a generation without rounds. Tokens of the last round that did not make it into `generation.ids`
    (the EOS, or what came after a stop string) are not shown.
    """
    if not generation.rounds:
        raise ValueError("the generation has no rounds to play; generate at least one token.")
    known = [(token, "p") for token in generation.prompt_ids]
    held, pending, written, found = 0, len(known), 0, []
    for number, done in enumerate(generation.rounds, start=1):
        m, n = len(done.draft), done.accepted
        here = {"round": number, "rounds": len(generation.rounds), "drafted": m, "accepted": n}
        undecided = (*known, *((token, "d") for token in done.draft))
        cells = "h" * held
        found.append(Moment(phase="draft", tokens=undecided, cells=cells, pending=pending, passes=number - 1,
                            plain=written, **here))  # fmt: skip
        cells += "w" * (pending + m)
        found.append(Moment(phase="pass", tokens=undecided, cells=cells, pending=0, passes=number,
                            plain=written, **here))  # fmt: skip
        own = "c" if done.kind == "correction" else "b"
        emitted = [*((token, "k") for token in done.draft[:n]), (done.token, own)]
        emitted = emitted[: len(generation.ids) - written]
        rejected = [(token, "r") for token in done.draft[n:]]
        cells = "h" * held + "k" * (pending + n) + "x" * (m - n)
        written += len(emitted)
        found.append(Moment(phase="verdict", tokens=(*known, *emitted[:n], *rejected, *emitted[n:]), cells=cells,
                            pending=1, passes=number, plain=written, **here))  # fmt: skip
        known += emitted
        held, pending = held + pending + n, 1
    return found


def in_words(moment: Moment, piece: Callable[[int], str]) -> str:
    """The moment as sentences; `piece` gives the text of an id."""
    m, n = moment.drafted, moment.accepted
    where = f"Round {moment.round} of {moment.rounds}, "
    held = moment.cells.count("h")
    if moment.phase == "draft":
        waiting = "the last token is" if moment.pending == 1 else f"{moment.pending} tokens are"
        proposed = " ".join(repr(piece(token)) for token, origin in moment.tokens if origin == "d")
        return (
            where + (f"draft: {_count(m, 'token')} proposed, {proposed}." if m else "draft: nothing is proposed.")
            + f" The cache holds {_count(held, 'position')}; {waiting} pending, known but not in it."
        )  # fmt: skip
    fed = moment.cells.count("w")
    if moment.phase == "pass":
        return (
            f"{where}target pass: {_count(fed, 'token')}, {fed - m} pending and {m} drafted, are fed in one pass; the "
            f"cache grows from {held} to {held + fed} positions."
        )
    left = len(moment.cells) - moment.cells.count("x")
    own = [piece(token) for token, origin in moment.tokens[-1:] if origin in "cb"]
    cut = f"the cache is cut back from {len(moment.cells)} to {left}" if n < m else f"all {left} cache positions stay"
    what = "correction" if n < m else "bonus"
    return (
        f"{where}verdict: {n} of {_count(m, 'draft')} kept"
        + (f", and the target adds its own {own[0]!r} ({what})" if own else ", and the request ends")
        + f"; {cut}. So far {_count(moment.plain, 'token')} in {_count(moment.passes, 'target pass')}; plain decoding "
        f"needs {moment.plain}."
    )


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 'es' if what.endswith('s') else 's'}"


def lines(moment: Moment, piece: Callable[[int], str]) -> list[list[tuple[str, str, bool]]]:
    """The text in lines of at most `COLUMNS` characters: pieces with their origin, and whether they are pending.

    A new line in a token is shown as a mark and breaks the line, a character that the font lacks is a dot; only the
    last `LINES` lines are given.
    """
    glyphs = _glyphs()
    known = len(moment.tokens) - sum(origin in "dr" for _, origin in moment.tokens)
    found: list[list[tuple[str, str, bool]]] = [[]]
    width = seen = 0
    for token, origin in moment.tokens:
        seen += origin not in "dr"
        pending = origin not in "dr" and seen > known - moment.pending
        text = "".join(c if c == "\n" or ord(c) in glyphs else "·" for c in piece(token).replace("\t", "→")) or "∅"
        for part in text.replace("\n", "↵\n").splitlines(keepends=True):
            while part:
                if width == COLUMNS or (width > 0 and len(part.rstrip("\n")) > COLUMNS - width):
                    found.append([])
                    width = 0
                shown, part = part[:COLUMNS], part[COLUMNS:]
                found[-1].append((shown.rstrip("\n"), origin, pending))
                width += len(found[-1][-1][0])
                if shown.endswith("\n"):
                    found.append([])
                    width = 0
    return found[-LINES:]


@cache
def _glyphs() -> frozenset[int]:
    """The characters that the monospaced font can show in one column."""
    return frozenset(get_font(findfont("monospace")).get_charmap()) - {*range(32), 127}


def draw(axes: Sequence[Axes], moment: Moment, piece: Callable[[int], str], slots: int, total: int) -> None:
    """The text by origin, the cache by state, and target passes against plain decoding.

    `slots` is the room for cache positions, `total` the tokens of the whole generation; both fix the scale.
    """
    (ax,) = axes
    ax.set_position((0, 0, 1, 1))  # all of the picture, so that a column is as wide as a character
    boxes, framed = _Boxes(), _Boxes()
    x = y = 0.0
    for label, colour in ORIGINS.values():
        framed.add(x, y, 1.6, colour)
        ax.text(x + 2.2, y + 0.5, label, va="center", fontsize=9, gid=FRAME)
        x += len(label) + 4.5
    framed.add(x, y, 1.6, "", edge=True)
    ax.text(x + 2.2, y + 0.5, "pending", va="center", fontsize=9, gid=FRAME)
    y += 1.5
    for line in lines(moment, piece):
        x = 0
        given = {origin for _, origin, _ in line} == {"p"}  # a line of the prompt stays as it is
        for text, origin, pending in line:
            (framed if given and not pending else boxes).add(x, y, len(text), ORIGINS[origin][1], edge=pending)
            if origin == "r":
                ax.plot([x, x + len(text)], [y + 0.5, y + 0.5], color=PALETTE["line"], linewidth=1)
            x += len(text)
        whole = "".join(text for text, *_ in line)
        looks: dict[str, Any] = {"family": "monospace", "fontsize": MONOSPACE, "parse_math": False}
        ax.text(0, y + 0.5, whole, va="center", gid=FRAME if given and not line[-1][2] else None, **looks)
        y += 1.1
    y = 1.5 + 1.1 * LINES + 0.3
    ax.text(0, y + 0.4, _cache_title(moment), va="center", fontsize=9)
    y += 1
    for slot in range(slots):
        state = moment.cells[slot : slot + 1]
        x, row = slot % COLUMNS, y + slot // COLUMNS
        boxes.add(x + 0.08, row, 0.84, CELLS[state][1] if state else "", edge=not state, pale=True)
        if state == "x":
            ax.plot([x + 0.08, x + 0.92], [row + 0.8, row], color=PALETTE["line"], linewidth=1)
    y += -(-slots // COLUMNS) + 0.3
    for label, value, colour in (
        (f"target passes: {moment.passes}", moment.passes, "target"),
        (f"plain decoding: {moment.plain}", moment.plain, "prompt"),
    ):
        ax.text(0, y + 0.45, label, va="center", fontsize=9)
        boxes.add(22, y, (COLUMNS - 22) * value / total, colour)
        y += 1
    framed.draw_on(ax, FRAME)
    boxes.draw_on(ax)
    ax.set(xlim=(-0.5, COLUMNS + 0.5), ylim=(y + 0.1, -0.2))
    ax.set_axis_off()


def _cache_title(moment: Moment) -> str:
    counts = [(label, moment.cells.count(letter)) for letter, (label, _) in CELLS.items()]
    named = ", ".join(f"{n} {label}" for label, n in counts if n)
    cut = moment.cells.count("x")
    remain = f"; {len(moment.cells) - cut} remain" if cut else ""
    return f"KV cache, {len(moment.cells)} positions: {named}{remain}" if named else "KV cache, empty"


class _Boxes:
    """Many rectangles drawn as one artist."""

    def __init__(self) -> None:
        self.corners: list[list[tuple[float, float]]] = []
        self.faces: list[Any] = []
        self.edges: list[Any] = []

    def add(self, x: float, y: float, width: float, colour: str, edge: bool = False, pale: bool = False) -> None:
        """A box of height 0.9 in a colour of the palette, "" for none, with an outline if `edge`, dark or `pale`."""
        bottom, right = y + 0.9, x + width
        self.corners.append([(x, y), (right, y), (right, bottom), (x, bottom)])
        self.faces.append((PALETTE[colour], 0.6) if colour else "none")
        self.edges.append(("#bbbbbb" if pale else PALETTE["line"]) if edge else "none")

    def draw_on(self, ax: Axes, gid: str | None = None) -> None:
        looks: dict[str, Any] = {"facecolors": self.faces, "edgecolors": self.edges, "linewidths": 1, "gid": gid}
        ax.add_collection(PolyCollection(self.corners, **looks), autolim=False)


def _pieces(generation: Generation, tok: TextCodec | None) -> Callable[[int], str]:
    """The text of an id: by `tok`, else as recorded, else the id itself."""
    if tok is not None:
        return lambda token: tok.decode([token])
    known = recordings.pieces() if generation == recorded() else {}
    return lambda token: known.get(token, f"[{token}]")


def _scale(moments: Sequence[Moment]) -> dict[str, int]:
    return {"slots": max(len(moment.cells) for moment in moments), "total": max(1, moments[-1].plain)}


def picture(generation: Generation, step: int, tok: TextCodec | None = None) -> None:
    """Show the moment `step` (from 0, negative from the end) of `generation` with its words under it."""
    moments, piece = compute(generation), _pieces(generation, tok)
    figure, axes = new_figure(height=HEIGHT)
    draw(axes, moments[step], piece, **_scale(moments))
    show(figure, in_words(moments[step], piece))


def widget(
    generation: Generation | None = None, prompt_ids: Sequence[int] | None = None, tok: TextCodec | None = None
) -> Explorable:
    """Play, step or scrub through `generation`; None plays the recorded one.

    `prompt_ids` replace those of the generation, if it has none. `tok` turns ids into text; without it ids are shown.
    ValueError for a generation without rounds.
    """
    made = recorded() if generation is None else generation
    if prompt_ids is not None:
        made = Generation(**{**vars(made), "prompt_ids": list(prompt_ids)})
    moments, piece = compute(made), _pieces(made, tok)
    scale = _scale(moments)
    used = sorted({token for moment in moments for token, _ in moment.tokens})
    return Explorable(
        "round_player",
        [Slider("step", "step", "a round has three: draft, target pass, verdict", 0, len(moments) - 1, 1, 0)],
        lambda axes, step: draw(axes, moments[step], piece, **scale),
        lambda step: in_words(moments[step], piece),
        Canvas(height=HEIGHT),
        {
            "pieces": {str(token): piece(token) for token in used},
            "steps": [_as_json(moment, piece) for moment in moments],
            "rounds": len(made.rounds),
            **scale,
        },
        _arrange,
    )


def _as_json(moment: Moment, piece: Callable[[int], str]) -> dict[str, Any]:
    return {
        **{name: value for name, value in moment._asdict().items() if name not in ("tokens", "rounds")},
        "ids": [token for token, _ in moment.tokens],
        "origins": "".join(origin for _, origin in moment.tokens),
        "words": in_words(moment, piece),
    }


def _arrange(inputs: dict[str, Any]) -> list[Any]:
    """Play, back and forward beside the slider."""
    slider = inputs["step"]
    play = widgets.Play(min=slider.min, max=slider.max, interval=round(1000 * SECONDS), tooltip="play")
    widgets.jslink((play, "value"), (slider, "value"))
    buttons = []
    for icon, by, means in (("step-backward", -1, "one step back"), ("step-forward", 1, "one step on")):
        button = widgets.Button(icon=icon, tooltip=means, layout=widgets.Layout(width="40px"))

        def move(_button: Any, by: int = by) -> None:
            slider.value = min(max(slider.value + by, slider.min), slider.max)

        button.on_click(move)
        buttons.append(button)
    return [widgets.HBox([play, *buttons]), slider]
