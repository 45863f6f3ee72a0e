"""The Transformer: its forward pass, its row-invariant kernels, its weights on disk."""
