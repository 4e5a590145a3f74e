"""kazoo's recipes as a contestant. process.go describes the commands."""

import logging
import os
import sys
import threading
import time

import kazoo
from kazoo.client import KazooClient
from kazoo.recipe.cache import TreeCache, TreeEvent

logging.disable(logging.CRITICAL)

output = threading.Lock()


def write_line(*words):
    with output:
        sys.stdout.write(" ".join(map(str, words)) + "\n")
        sys.stdout.flush()


class Peer:
    def __init__(self, addresses, timeout):
        self.addresses = addresses.split(",")
        self.timeout = timeout
        self.clients = {}
        self.locks = {}
        self.closing = set()
        self.leaving = 0
        self.leaving_lock = threading.Lock()
        self.reported = threading.Event()

    def connect(self, session):
        client = KazooClient(hosts=self.addresses[session % len(self.addresses)], timeout=self.timeout)
        client.start(timeout=30)
        self.clients[session] = client

    def disconnect(self, session):
        client = self.clients.pop(session)
        self.closing.add(client)
        at = time.monotonic_ns()
        client.stop()
        client.close()
        return at

    def time_join(self, session, path):
        client = self.clients[session]
        start = time.monotonic_ns()
        lock = client.Lock(path, "bench")
        lock.acquire()
        took = time.monotonic_ns() - start
        lock.release()
        return took

    def must_leave(self):
        with self.leaving_lock:
            self.leaving -= 1
            return self.leaving >= 0

    def leave_next(self, n):
        with self.leaving_lock:
            self.leaving = n

    def join(self, recipe, candidate, session, path):
        client = self.clients[session]
        lock = client.Lock(path, "bench")  # for elections and for locks
        self.locks[candidate] = lock

        def acquire():
            try:
                lock.acquire()
                acquired = time.monotonic_ns()
                if self.must_leave():
                    del self.locks[candidate]
                    lock.release()
                write_line("acquired", candidate, acquired)
            except BaseException as e:  # kazoo has several exceptions for cancellations
                if client not in self.closing:
                    write_line("failed", repr(e))

        threading.Thread(target=acquire, daemon=True).start()

    def leave(self, candidate):
        lock = self.locks.pop(candidate)
        at = time.monotonic_ns()
        lock.release()
        return at

    def contend(self, n, locks, path, held, warmup, length):
        cycles, failures = [[] for _ in range(n)], []
        start = time.monotonic_ns()
        end = start + warmup + length

        def run(session):
            try:
                client, chosen = self.clients[session], session
                own = [client.Lock("%s/item-%05d" % (path, i), "bench") for i in range(locks)]
                while time.monotonic_ns() < end:
                    chosen %= locks
                    own[chosen].acquire()
                    granted = time.monotonic_ns()
                    if held:
                        time.sleep(held / 1e9)
                    releasing = time.monotonic_ns()
                    own[chosen].release()
                    cycles[session] += (chosen, granted, releasing, time.monotonic_ns())
                    chosen += 1
            except BaseException as e:  # kazoo has several exceptions for cancellations
                failures.append(e)

        self.run_threads(n, run, failures)
        return " ".join(map(str, [start] + [at for session in cycles for at in session]))

    def repeat(self, operation, n, path, warmup, length):
        times, failures = [[] for _ in range(n)], []

        def adder(client):
            counter = client.Counter(path + "/counter")

            def add():
                counter.__add__(1)  # += without the assignment; it retries

            return add

        def passer(client):
            queue = client.LockingQueue(path + "/items")

            def pass_on():
                queue.put(bytes(100))
                if queue.get(20) is None or not queue.consume():
                    raise RuntimeError("an item was lost")

            return pass_on

        construct = {"add": adder, "queue": passer}[operation]
        operations = [construct(self.clients[session]) for session in range(n)]
        start = time.monotonic_ns()
        end = start + warmup + length

        def run(session):
            try:
                while time.monotonic_ns() < end:
                    operations[session]()
                    times[session].append(time.monotonic_ns())
            except BaseException as e:  # kazoo has several exceptions for cancellations
                failures.append(e)

        self.run_threads(n, run, failures)
        return " ".join(map(str, [start] + [at for session in times for at in session]))

    def fill_cache(self, session, path, n):
        filled = threading.Event()

        def listen(event):
            if event.event_type == TreeEvent.INITIALIZED:
                filled.set()

        start = time.monotonic_ns()
        cache = TreeCache(self.clients[session], path)
        cache.listen(listen)
        cache.start()
        if not filled.wait(25):
            raise RuntimeError("the cache is not filled")
        took = time.monotonic_ns() - start
        count = len(cache.get_children(path))
        cache.close()
        if count != n:
            raise RuntimeError("the cache has %d of %d" % (count, n))
        return took

    def watch_cache(self, session, path):
        filled = threading.Event()

        def listen(event):
            if event.event_type == TreeEvent.INITIALIZED:
                filled.set()
            elif event.event_type == TreeEvent.NODE_UPDATED:
                self.reported.set()

        self.cache = TreeCache(self.clients[session], path)
        self.cache.listen(listen)
        self.cache.start()
        if not filled.wait(25):
            raise RuntimeError("the cache is not filled")

    def write_cached(self, session, path):
        self.reported.clear()
        start = time.monotonic_ns()
        self.clients[session].set(path + "/written", bytes(100))
        if not self.reported.wait(20):
            raise RuntimeError("the cache does not report the write")
        return time.monotonic_ns() - start

    def run_threads(self, n, run, failures):
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
        self.leaving = 0


def main():
    peer = Peer(sys.argv[1], float(sys.argv[2]))
    threading.stack_size(256 * 1024)
    write_line("ready", kazoo.__version__, "on Python", sys.version.split()[0])
    for line in sys.stdin:
        command, *args = line.split()
        args = [int(a) if a.isdigit() else a for a in args]
        try:
            response = getattr(peer, command)(*args)
            if command != "join":
                write_line("ok", "" if response is None else response)
        except Exception as e:
            write_line("failed" if command == "join" else "error", repr(e))
    os._exit(0)  # threads may still wait for locks


main()
