"""kazoo's recipes, as peer_test.go asks for them, each command on a thread of its own."""

import logging
import os
import socket
import sys
import threading
import traceback

import kazoo
from kazoo.client import KazooClient

logging.disable(logging.CRITICAL)

zookeeper, oracle = sys.argv[1], sys.argv[2].split(":")
saying = threading.Lock()
kept = {}


def say(*words):
    with saying:
        sys.stdout.write(" ".join(map(str, words)) + "\n")
        sys.stdout.flush()


def connect():
    # Retries of kazoo's own are few; a counter needs one for each collision.
    retry = dict(max_tries=-1, delay=0.002, backoff=1, max_delay=0.01)
    client = KazooClient(hosts=zookeeper, timeout=10, command_retry=retry)
    client.start(timeout=30)
    return client


clients = [connect(), connect()]


class Visitor:
    """One who tells the oracle what it does."""

    def __init__(self):
        self.socket = socket.create_connection((oracle[0], int(oracle[1])))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rw", encoding="utf-8", newline="\n")

    def tell(self, *words):
        self.file.write(" ".join(words) + "\n")
        self.file.flush()
        if not self.file.readline():
            raise IOError("the oracle is gone")

    def __enter__(self):
        return self

    def __exit__(self, *why):
        self.file.close()
        self.socket.close()


def contend(client, kind, path, room, who, rounds, most):
    with Visitor() as v:

        def visit():
            v.tell("enter", room, who, "read" if kind == "read" else "write")
            v.tell("leave", room, who)

        for _ in range(int(rounds)):
            if kind == "latch":
                client.Election(path, who).run(visit)
                continue
            lock = {
                "mutex": lambda: client.Lock(path, who),
                "write": lambda: client.WriteLock(path, who),
                "read": lambda: client.ReadLock(path, who),
                "semaphore": lambda: client.Semaphore(path, who, max_leases=int(most)),
            }[kind]()
            lock.acquire()
            try:
                visit()
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


def consume(client, handle, path, claims, room, who):
    over = threading.Event()

    def run():
        queue = client.LockingQueue(path)
        with Visitor() as v:
            while not over.is_set():
                item = queue.get(0.2)
                if item is not None:
                    v.tell("took", room, who, item.decode())
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


def join(client, handle, path, id, data):
    party = client.Party(path, id)
    party.join()
    kept[handle] = party.leave


def members(client, path):
    return ",".join(sorted(client.Party(path)))


def close(client, handle):
    kept.pop(handle)()


commands = (contend, add, get, barrier, put, consume, join, members, close)
commands = {f.__name__: f for f in commands}


def obey(number, command, session, *args):
    try:
        answer = commands[command](clients[int(session)], *args)
        say(number, "ok", "" if answer is None else answer)
    except BaseException as e:
        traceback.print_exc()
        say(number, "error", repr(e))


say("ready", kazoo.__version__)
for line in sys.stdin:
    words = line.split()
    threading.Thread(target=obey, args=words, daemon=True).start()
for c in clients:
    c.stop()
os._exit(0)  # whatever threads still wait for
