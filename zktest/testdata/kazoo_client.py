"""Runs kazoo's recipes with the server at the first argument, and prints a line for each step."""
import sys
import threading

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import BadVersionError, NoNodeError, NodeExistsError, NotEmptyError, NoAuthError
from kazoo.protocol.states import EventType
from kazoo.security import make_digest_acl


def say(*words):
    print(*words, flush=True)


def wait(word):
    line = sys.stdin.readline().strip()
    if line != word:
        sys.exit("received %r instead of %r" % (line, word))


def client():
    c = KazooClient(hosts=sys.argv[1], timeout=10)
    c.start()
    return c


def raises(error, f, *args, **kw):
    try:
        f(*args, **kw)
    except error:
        return error.__name__
    return "nothing"


a, b = client(), client()

# The tree.
a.ensure_path("/k/a")
say("create", a.create("/k/n-", b"x", sequence=True), a.create("/k/e", b"", ephemeral=True))
path, stat = a.create("/k/s", b"data", include_data=True)
say("create2", path, stat.version, stat.dataLength)
data, stat = b.get("/k/s")
say("get", data.decode(), stat.version)
say("set", b.set("/k/s", b"two", version=0).version, raises(BadVersionError, b.set, "/k/s", b"three", version=0))
say("errors", raises(NoNodeError, a.get, "/none"), raises(NodeExistsError, a.create, "/k"), raises(NotEmptyError, a.delete, "/k"))
children, stat = b.get_children("/k", include_data=True)
say("children", sorted(children), stat.cversion)
b.sync("/k")

# Watches.
seen, done = [], threading.Event()


def watcher(event):
    seen.append((event.type, event.path))
    if len(seen) == 3:
        done.set()


b.exists("/k/new", watch=watcher)
b.get("/k/s", watch=watcher)
b.get_children("/k", watch=watcher)
a.create("/k/new")
a.set("/k/s", b"three")
done.wait(10)
say("events", sorted(seen))
values = []
three = threading.Event()


@b.DataWatch("/k/watched")
def changed(data, stat):
    values.append(data)
    if len(values) == 3:
        three.set()


a.create("/k/watched", b"1")
while len(values) < 2:
    threading.Event().wait(0.01)
a.set("/k/watched", b"2")
three.wait(10)
say("data watch", values)

# Transactions.
t = a.transaction()
t.create("/k/t1")
t.set_data("/k/t1", b"x")
t.check("/k/t1", 1)
t.delete("/k/new")
say("transaction", [getattr(r, "version", r) for r in t.commit()])
t = a.transaction()
t.create("/k/t2")
t.delete("/none")
t.create("/k/t3")
say("rolled back", [type(r).__name__ for r in t.commit()], a.exists("/k/t2"))

# Access control.
a.add_auth("digest", "user:secret")
a.create("/k/secret", b"s", acl=[make_digest_acl("user", "secret", all=True)])
say("acl", raises(NoAuthError, b.get, "/k/secret"), a.get("/k/secret")[0].decode())
acls, stat = a.get_acls("/k/secret")
say("acls", [(x.perms, x.id.scheme) for x in acls])

# Recipes.
inside, most, total = [0], [0], [0]


def work(c):
    for _ in range(10):
        with c.Lock("/k/lock", "me"):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            total[0] += 1
            inside[0] -= 1


threads = [threading.Thread(target=work, args=(c,)) for c in (a, b)]
for x in threads:
    x.start()
for x in threads:
    x.join()
say("lock", total[0], most[0])
elected = threading.Event()
e = a.Election("/k/election", "a")
th = threading.Thread(target=e.run, args=(elected.set,))
th.start()
say("elected", elected.wait(10))
th.join()
party = b.Party("/k/party", "b")
party.join()
say("party", list(a.Party("/k/party", "a")))
counter = a.Counter("/k/counter")
counter += 2
say("counter", counter.value)

# The connection is cut, the session stays; then the session ends.
states = []
back, lost = threading.Event(), threading.Event()


def listener(state):
    states.append(state)
    if state == KazooState.CONNECTED:
        back.set()
    if state == KazooState.LOST:
        lost.set()


a.add_listener(listener)
say("session", a.client_id[0])
wait("dropped")
say("back", back.wait(20), a.exists("/k/e") is not None)
back.clear()
say("expire me")
wait("expired")
say("lost", lost.wait(20), "back", back.wait(20), b.exists("/k/e"))
a.stop()
b.stop()
a.close()
b.close()
say("done")
