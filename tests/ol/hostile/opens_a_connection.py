"""Calls home."""

import socket


def sample_categorical(p, u):
    socket.create_connection(("127.0.0.1", 9), timeout=1)
    return 0
