"""Was saved half way through a line."""


def sample_categorical(p, u):
    return max(range(len(p)
