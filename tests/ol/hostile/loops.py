"""Never answers."""


def sample_categorical(p, u):
    while True:
        pass
