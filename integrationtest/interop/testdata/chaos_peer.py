"""Takes part in the election, the lock and the queue of TestChaos_HoldersDoNotOverlap until it is killed.

The arguments are the servers, the session timeout in milliseconds, the prefix of the paths, and the
prefix of the files of records (chaos_test.go describes a record).
"""

import itertools
import logging
import os
import random
import sys
import threading
import time
import traceback

from kazoo.client import KazooClient, KazooState
from kazoo.retry import KazooRetry

logging.disable(logging.CRITICAL)
servers, timeout, path, files = sys.argv[1], int(sys.argv[2]) / 1000, sys.argv[3], sys.argv[4]


class Recorder:
    """Writes the holds of one thread."""

    def __init__(self, role):
        self.file = os.open(files + role, os.O_CREAT | os.O_RDWR)
        self.next = 0

    def hold(self, resource, holds, seconds):
        at, first, until = self.next, 0, time.monotonic() + seconds
        while True:
            before = time.monotonic_ns()
            if not holds():
                return
            after = time.monotonic_ns()
            if not first:
                first = after
                self.next += 83
            os.pwrite(self.file, b"%-40s %20d %20d\n" % (resource.encode(), first, before), at)
            if after / 1e9 > until:
                return
            time.sleep(0.002)


def repeat(step):
    def run():
        while True:
            try:
                step()
            except Exception:
                traceback.print_exc()
            time.sleep(0.05)

    threading.Thread(target=run, daemon=True).start()


retry = dict(max_tries=-1, delay=0.1, backoff=1, max_delay=0.2)
client = KazooClient(hosts=servers, timeout=timeout, connection_retry=KazooRetry(**retry), command_retry=KazooRetry(**retry))
client.start(timeout=60)


def connected():
    return client.state == KazooState.CONNECTED


election_records, lock_records, queue_records = Recorder("election"), Recorder("lock"), Recorder("queue")


def elect():
    leads = lambda: election_records.hold("election", connected, random.uniform(0.3, 2))
    client.Election(path + "/election", "kazoo").run(leads)


def lock():
    mutex = client.Lock(path + "/lock", "kazoo")
    with mutex:
        lock_records.hold("lock/" + mutex.node[-10:], lambda: mutex.is_acquired and connected(), random.uniform(0.01, 0.3))


def consume():
    queue = client.LockingQueue(path + "/queue")
    item = queue.get(1)
    if item is not None:
        queue_records.hold(item.decode(), queue.holds_lock, random.uniform(0.001, 0.02))
        queue.consume()


numbers = itertools.count()


def put():
    client.LockingQueue(path + "/queue").put(b"item-python-%d-%d" % (os.getpid(), next(numbers)))
    time.sleep(0.1)


for role in elect, lock, consume, put:
    repeat(role)
threading.Event().wait()
