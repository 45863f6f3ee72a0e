"""Decoding: one token a pass (`generate`), then several (`spec`)."""
