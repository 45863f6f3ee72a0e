"""Many runs at once, each contained as one alone: forked from a common nursery where there is one.

A bug planted and a correct implementation are runs like any other: here are also the overlays for both.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from ol.alternatives import alternatives_of
from ol.bugs import Bug, plant
from ol.course import Module, dotted, needed, reference
from ol.nursery import AVAILABLE, Nursery
from ol.overlay import Overlay
from ol.sandbox import Outcome, Run, run

WORKERS = os.cpu_count() or 1
OnEvent = Callable[[dict[str, Any]], None]


class Runner:
    """Makes runs, `workers` at a time. Use it as a context manager: an interrupted block leaves nothing running.

    `warm`: modules that every run needs and none judges, loaded once.
    """

    def __init__(self, workers: int = WORKERS, warm: Iterable[str] = ()) -> None:
        if workers < 1:
            raise ValueError(f"{workers} workers do no work; ask for 1 or more.")
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(workers)
        self._nursery = Nursery(warm) if AVAILABLE else None

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._nursery is not None:
            self._nursery.close()  # its children end with it, and so do the runs that wait for them
        self._pool.shutdown(cancel_futures=True)

    def outcomes(self, runs: Iterable[Run], on_done: Callable[[int, Outcome], None] | None = None) -> list[Outcome]:
        """What each run came to, in the order of `runs`; `on_done` sees each, with its place, as it ends."""
        places = {self._pool.submit(run, what, None, self._nursery, self._stop): i for i, what in enumerate(runs)}
        found: dict[int, Outcome] = {}
        for future in as_completed(places):
            place = places[future]
            found[place] = future.result()
            if on_done is not None:
                on_done(place, found[place])
        return [found[place] for place in range(len(found))]


def warm_for(chosen: Module) -> tuple[str, ...]:
    """What tests of a module load besides the module itself: the course's version of what it needs."""
    return tuple(dotted(rel) for other in needed(chosen) for rel in other.files)


@dataclass(frozen=True)
class Correct:
    """A correct implementation of a module: "reference", or the name of an alternative."""

    name: str
    files: Mapping[str, Path]  # relative to the course, such as "tinyllm/infer/spec.py"

    @property
    def overlay(self) -> Overlay:
        """It in place of the reference."""
        return Overlay({dotted(rel): path for rel, path in self.files.items()})


def correct_ones(chosen: Module) -> list[Correct]:
    """The reference and each alternative; where an alternative leaves a file out, the reference's."""
    own = {rel: reference(rel) for rel in chosen.files}
    others = [Correct(other.name, {**own, **other.files}) for other in alternatives_of(chosen.id)]
    return [Correct("reference", own), *others]


def with_bug(bug: Bug, chosen: Module, folder: Path) -> Overlay:
    """The reference with one bug; the files that differ are written below `folder`. StaleEdit for a stale one."""
    files = {rel: reference(rel) for rel in chosen.files}
    for rel, text in plant(bug).items():
        files[rel] = folder / bug.id / rel
        files[rel].parent.mkdir(parents=True, exist_ok=True)
        files[rel].write_text(text, encoding="utf-8")
    return Overlay({dotted(rel): path for rel, path in files.items()})
