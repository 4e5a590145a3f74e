"""What the programs of programs_test.go have in common. They end when their standard input is closed."""

import os
import sys
import threading

from kazoo.client import KazooClient

zookeeper, path = sys.argv[1:3]
tenants = ["tenant-%02d" % i for i in range(64)]
closed = threading.Event()


def connect():
    client = KazooClient(hosts=zookeeper, timeout=10)
    client.start(timeout=30)
    threading.Thread(target=lambda: (sys.stdin.read(), closed.set()), daemon=True).start()
    return client


def stopped():
    return closed.is_set()


def report(line):
    os.write(1, (line + "\n").encode())
