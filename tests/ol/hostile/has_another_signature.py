"""Takes one argument too few."""


def sample_categorical(p):
    return 0
