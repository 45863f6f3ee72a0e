"""Pictures and controls: a pure `compute`, a `draw` on Matplotlib axes, and a thin widget, one file an explorable."""
