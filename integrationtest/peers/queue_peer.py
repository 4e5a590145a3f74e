"""kazoo's LockingQueue beside recipes/queue: puts items, then takes and consumes
what there is until standard input ends, and names each item on a line."""

import sys
import threading

from kazoo.client import KazooClient
from kazoo.recipe.queue import LockingQueue

address, _, path, count = sys.argv[1:5]
client = KazooClient(hosts=address, timeout=4)
client.start()
queue = LockingQueue(client, path)
over = threading.Event()


def read():
    sys.stdin.read()
    over.set()


threading.Thread(target=read, daemon=True).start()
queue.put_all([b"peer-%d" % i for i in range(int(count))])
print("ready", flush=True)
while not over.is_set():
    data = queue.get(0.1)
    if data is not None:
        print("took", data.decode(), flush=True)
        if not queue.consume():
            print("lost", data.decode(), flush=True)
client.stop()
