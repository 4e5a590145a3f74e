"""Runs a job under a lock, and tells it when the lock may be lost."""

import threading

from kazoo.client import KazooState

from run import connect, path, report


def backup(lost):
    report("working")


client = connect()
# begin
lost = threading.Event()


def listen(state):
    if state != KazooState.CONNECTED:
        lost.set()


client.add_listener(listen)
with client.Lock(path):
    backup(lost)
client.remove_listener(listen)
# end
