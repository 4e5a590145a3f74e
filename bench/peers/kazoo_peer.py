"""kazoo's recipes as a contestant; peer.go says what the lines mean."""

import logging
import os
import sys
import threading
import time

import kazoo
from kazoo.client import KazooClient
from kazoo.recipe.cache import TreeCache, TreeEvent

logging.disable(logging.CRITICAL)

writing = threading.Lock()


def say(*words):
    with writing:
        sys.stdout.write(" ".join(map(str, words)) + "\n")
        sys.stdout.flush()


class Peer:
    def __init__(self, address, timeout):
        self.address = address
        self.timeout = timeout
        self.clients = {}
        self.locks = {}
        self.closing = set()
        self.told = threading.Event()

    def connect(self, session):
        client = KazooClient(hosts=self.address, timeout=self.timeout)
        client.start(timeout=30)
        self.clients[session] = client

    def disconnect(self, session):
        client = self.clients.pop(session)
        self.closing.add(client)
        at = time.monotonic_ns()
        client.stop()
        client.close()
        return at

    def join(self, session, path):
        client = self.clients[session]
        start = time.monotonic_ns()
        lock = client.Lock(path, "bench")
        lock.acquire()
        took = time.monotonic_ns() - start
        lock.release()
        return took

    def stand(self, candidate, session, path):
        client = self.clients[session]
        lock = client.Lock(path, "bench")
        self.locks[candidate] = lock

        def acquire():
            try:
                lock.acquire()
                say("leads", candidate, time.monotonic_ns())
            except BaseException as e:  # kazoo cancels by several kinds
                if client not in self.closing:
                    say("failed", repr(e))

        threading.Thread(target=acquire, daemon=True).start()

    def leave(self, candidate):
        lock = self.locks.pop(candidate)
        at = time.monotonic_ns()
        lock.release()
        return at

    def contend(self, n, path, lead, length):
        cycles, failures = [[] for _ in range(n)], []
        start = time.monotonic_ns()
        end = start + lead + length

        def run(session):
            try:
                lock = self.clients[session].Lock(path, "bench")
                while time.monotonic_ns() < end:
                    lock.acquire()
                    granted = time.monotonic_ns()
                    releasing = time.monotonic_ns()
                    lock.release()
                    cycles[session] += (granted, releasing, time.monotonic_ns())
            except BaseException as e:  # kazoo cancels by several kinds
                failures.append(e)

        self.together(n, run, failures)
        return " ".join(map(str, [start] + [at for times in cycles for at in times]))

    def work(self, kind, n, path, lead, length):
        times, failures = [[] for _ in range(n)], []

        def adder(client):
            counter = client.Counter(path + "/counter")

            def add():
                counter.__add__(1)  # += without the assignment; it tries again itself

            return add

        def queuer(client):
            queue = client.LockingQueue(path + "/items")

            def pass_on():
                queue.put(bytes(100))
                if queue.get(20) is None or not queue.consume():
                    raise RuntimeError("an item was lost")

            return pass_on

        begin = {"add": adder, "queue": queuer}[kind]
        onces = [begin(self.clients[session]) for session in range(n)]
        start = time.monotonic_ns()
        end = start + lead + length

        def run(session):
            try:
                while time.monotonic_ns() < end:
                    onces[session]()
                    times[session].append(time.monotonic_ns())
            except BaseException as e:  # kazoo cancels by several kinds
                failures.append(e)

        self.together(n, run, failures)
        return " ".join(map(str, [start] + [at for some in times for at in some]))

    def fill(self, session, path, n):
        filled = threading.Event()

        def listen(event):
            if event.event_type == TreeEvent.INITIALIZED:
                filled.set()

        start = time.monotonic_ns()
        cache = TreeCache(self.clients[session], path)
        cache.listen(listen)
        cache.start()
        if not filled.wait(25):
            raise RuntimeError("a cache is not filled")
        took = time.monotonic_ns() - start
        count = len(cache.get_children(path))
        cache.close()
        if count != n:
            raise RuntimeError("the cache has %d of %d" % (count, n))
        return took

    def watch(self, session, path):
        filled = threading.Event()

        def listen(event):
            if event.event_type == TreeEvent.INITIALIZED:
                filled.set()
            elif event.event_type == TreeEvent.NODE_UPDATED:
                self.told.set()

        self.cache = TreeCache(self.clients[session], path)
        self.cache.listen(listen)
        self.cache.start()
        if not filled.wait(25):
            raise RuntimeError("a cache is not filled")

    def write(self, session, path):
        self.told.clear()
        start = time.monotonic_ns()
        self.clients[session].set(path + "/written", bytes(100))
        if not self.told.wait(20):
            raise RuntimeError("a cache does not tell of a write")
        return time.monotonic_ns() - start

    def together(self, n, run, failures):
        threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def reset(self):
        for session in list(self.clients):
            self.disconnect(session)
        self.locks.clear()


def main():
    peer = Peer(sys.argv[1], float(sys.argv[2]))
    threading.stack_size(256 * 1024)
    say("ready", kazoo.__version__, "on Python", sys.version.split()[0])
    for line in sys.stdin:
        command, *args = line.split()
        args = [int(a) if a.isdigit() else a for a in args]
        try:
            answer = getattr(peer, command)(*args)
            if command != "stand":
                say("ok", "" if answer is None else answer)
        except Exception as e:
            say("failed" if command == "stand" else "error", repr(e))
    os._exit(0)  # whatever threads still wait for


main()
