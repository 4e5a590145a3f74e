"""Executes the commands of peer_test.go with kazoo's recipes, each in a separate thread."""

import logging
import os
import socket
import sys
import threading
import traceback

import kazoo
from kazoo.client import KazooClient

logging.disable(logging.CRITICAL)

zookeeper, monitor = sys.argv[1], sys.argv[2].split(":")
print_lock = threading.Lock()
kept = {}


def print_line(*words):
    with print_lock:
        sys.stdout.write(" ".join(map(str, words)) + "\n")
        sys.stdout.flush()


def connect():
    # kazoo retries rarely by default, and a counter needs a retry for each collision.
    retry = dict(max_tries=-1, delay=0.002, backoff=1, max_delay=0.01)
    client = KazooClient(hosts=zookeeper, timeout=10, command_retry=retry)
    client.start(timeout=30)
    return client


clients = [connect(), connect()]


class MonitorClient:
    """A connection to the monitor."""

    def __init__(self):
        self.socket = socket.create_connection((monitor[0], int(monitor[1])))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rw", encoding="utf-8", newline="\n")

    def report(self, *words):
        self.file.write(" ".join(words) + "\n")
        self.file.flush()
        if not self.file.readline():
            raise IOError("the monitor has closed the connection")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()
        self.socket.close()


def contend(client, kind, path, resource, name, rounds, most):
    with MonitorClient() as v:

        def hold():
            v.report("acquire", resource, name, "read" if kind == "read" else "write")
            v.report("release", resource, name)

        for _ in range(int(rounds)):
            if kind == "latch":
                client.Election(path, name).run(hold)
                continue
            lock = {
                "mutex": lambda: client.Lock(path, name),
                "write": lambda: client.WriteLock(path, name),
                "read": lambda: client.ReadLock(path, name),
                "semaphore": lambda: client.Semaphore(path, name, max_leases=int(most)),
            }[kind]()
            lock.acquire()
            try:
                hold()
            finally:
                lock.release()


def add(client, kind, path, times, delta):
    counter = client.Counter(path, support_curator=kind == "int")
    for _ in range(int(times)):
        counter += int(delta)


def get(client, kind, path):
    return client.Counter(path, support_curator=kind == "int").value


def barrier(client, what, path):
    b = client.Barrier(path)
    {"set": b.create, "remove": b.remove, "wait": b.wait}[what]()


def put(client, path, *items):
    queue = client.LockingQueue(path)
    for item in items:
        queue.put(item.encode())


def consume(client, handle, path, claims, resource, name):
    over = threading.Event()

    def run():
        queue = client.LockingQueue(path)
        with MonitorClient() as v:
            while not over.is_set():
                item = queue.get(0.2)
                if item is not None:
                    v.report("take", resource, name, item.decode())
                    if not queue.consume():
                        raise RuntimeError("item was lost")

    def guarded():
        try:
            run()
        except Exception:
            traceback.print_exc()

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()

    def close():
        over.set()
        thread.join()

    kept[handle] = close


def share(client, handle, kind, path, claims, resource, name, count):
    consume(client, handle, path, claims, resource, name)
    put(client, path, *("%s-%d" % (name, i) for i in range(int(count))))


def join(client, handle, path, id, data):
    party = client.Party(path, id)
    party.join()
    kept[handle] = party.leave


def members(client, path):
    return ",".join(sorted(client.Party(path)))


def close(client, handle):
    kept.pop(handle)()


commands = (contend, add, get, barrier, put, consume, share, join, members, close)
commands = {f.__name__: f for f in commands}


def execute(number, command, session, *args):
    try:
        answer = commands[command](clients[int(session)], *args)
        print_line(number, "ok", "" if answer is None else answer)
    except BaseException as e:
        traceback.print_exc()
        print_line(number, "error", repr(e))


print_line("ready", kazoo.__version__)
for line in sys.stdin:
    words = line.split()
    threading.Thread(target=execute, args=words, daemon=True).start()
for c in clients:
    c.stop()
os._exit(0)  # even if threads still wait
