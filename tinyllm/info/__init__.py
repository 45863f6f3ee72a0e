"""How far apart two distributions are."""
