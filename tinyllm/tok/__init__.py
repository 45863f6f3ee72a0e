"""Text to ids and back: what a tokenizer is, bytes, and SmolLM2's byte-level BPE."""
