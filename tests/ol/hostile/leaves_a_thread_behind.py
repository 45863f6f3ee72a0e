"""Has a thread that ends the process a little later; the answers are wrong."""

import os
import threading

threading.Timer(0.3, os._exit, args=(0,)).start()


def sample_categorical(p, u):
    import time

    time.sleep(0.5)
    return 0
