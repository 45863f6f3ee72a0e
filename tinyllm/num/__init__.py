"""Numbers that can be replayed: a random generator, exact sums, and the compiler behind both fast and exact loops."""
