package cache

import (
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestCache_ReportsDeletionWithoutRequest checks that a cache reports a deletion when the watch fires, even if the
// server receives no request from the cache.
func TestCache_ReportsDeletionWithoutRequest(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		create(h, "/a", "/a/b")
		c, r := openFilled(h, "/a", Children)
		r.takeEvents()
		h.Server.Blackhole(zktest.ToServer, cacheSession(h))
		remove(h, "/a/b")
		require.Equal(h, []string{"deleted /a/b"}, r.takeEvents())
		require.Equal(h, 1, c.Len())
	})
}

// manualUpdater is an updater of /a without a goroutine. The test applies replies and events in any order, because
// the connection of a cache delivers each of them to a separate goroutine, so that the order of their arrival is
// not certain.
type manualUpdater struct {
	*testing.T
	u *updater
	// watches contains the watches that were set and have not fired, and fire the functions that fire these
	// watches, by kind and path.
	watches map[string]*watch.Watch
	fire    map[string]func(zk.EventType)
}

// runManual runs f with a tree that contains /a with zxid 1, and /a/b with zxid 2.
func runManual(t *testing.T, f func(m *manualUpdater)) {
	runInBubble(t, func(h *bubble.Test) {
		u, err := newCache(h.Conn, "/a", Subtree, []Option{recipes.WithSessionTimeout(bubble.SessionTimeout)})
		require.NoError(h, err)
		defer u.stop()
		m := &manualUpdater{h.T, u, map[string]*watch.Watch{}, map[string]func(zk.EventType){}}
		m.read("/a", fetchData, 1, 1, 2)
		m.read("/a", fetchList, 1, 1, 2, "b")
		m.read("/a/b", fetchData, 2, 2, 2)
		m.read("/a/b", fetchList, 2, 2, 2)
		m.requireEvents("created /a=", "created /a/b=")
		require.Zero(m, u.pending)
		f(m)
	})
}

func (m *manualUpdater) findNode(path string) *node {
	m.Helper()
	n := m.u.tree.find(path)
	require.NotNil(m, n, path)
	return n
}

// start returns a request for a part of a znode, as if the updater had sent it now.
func (m *manualUpdater) start(path string, op fetchOp) *fetch {
	m.Helper()
	f := &fetch{node: m.findNode(path), op: op, watching: true, epoch: m.u.epoch, sent: m.u.nextTick()}
	if op == fetchList {
		f.kind = listPart
	}
	p := f.node.part(f.kind)
	p.inFlight, p.dirty, p.queued = true, false, false
	m.u.inFlight++
	return f
}

// complete sets the reply of a request, and the watch that the request has set, or that an earlier request has set
// and that has not fired.
func (m *manualUpdater) complete(f *fetch, czxid, mzxid, pzxid int64, children ...string) *fetch {
	f.stat, f.children, f.exists = &zk.Stat{Czxid: czxid, Mzxid: mzxid, Pzxid: pzxid}, children, true
	key := map[partKind]string{dataPart: "data ", listPart: "list "}[f.kind] + f.node.path
	if m.watches[key] == nil {
		c, fire := newWatchChannel()
		m.watches[key] = watch.New(c)
		m.fire[key] = func(typ zk.EventType) {
			fire(typ)
			delete(m.fire, key)
			delete(m.watches, key)
		}
	}
	f.watch = m.watches[key]
	return f
}

// completeAbsent sets the reply of a request for a znode that does not exist.
func (m *manualUpdater) completeAbsent(f *fetch) *fetch {
	f.err = zk.ErrNoNode
	return f
}

// read sends a request and applies its reply immediately.
func (m *manualUpdater) read(path string, op fetchOp, czxid, mzxid, pzxid int64, children ...string) {
	m.Helper()
	m.u.handleReply(m.complete(m.start(path, op), czxid, mzxid, pzxid, children...))
}

// changeParent fires the watches on /a with events other than a deletion, and handles the events.
func (m *manualUpdater) changeParent() {
	m.fire["data /a"](zk.EventNodeDataChanged)
	m.fire["list /a"](zk.EventNodeChildrenChanged)
	root := m.findNode("/a")
	m.u.pollPart(&root.data)
	m.u.pollPart(&root.list)
}

// requireEvents requires that the queue contains these events, and removes them.
func (m *manualUpdater) requireEvents(want ...string) {
	m.Helper()
	var events []string
	for !m.u.events.isEmpty() {
		events = append(events, eventText(m.u.events.firstEvent()))
		m.u.events.removeFirst()
	}
	require.Equal(m, want, events)
}

// requireQueued requires that the updater will read the data of a znode again.
func (m *manualUpdater) requireQueued(path string) {
	m.Helper()
	require.True(m, m.findNode(path).data.queued, "the data of %s is not read again", path)
}

// TestUpdater_QueuesReadOnce checks that the updater reads a part of a znode only once if the watch of the part
// fires while the part waits to be read.
func TestUpdater_QueuesReadOnce(t *testing.T) {
	runManual(t, func(m *manualUpdater) {
		n := m.findNode("/a/b")
		m.u.readAgain(n)
		m.fire["data /a/b"](zk.EventNodeDataChanged)
		m.u.startFetch(nodePart{n, dataPart})
		require.True(m, n.data.inFlight)
		require.False(m, n.data.queued)
		synctest.Wait()
	})
}

// TestUpdater_KeepsNewestStatOfChildren checks that the fields of a Stat that describe the children come from the
// newest reply, whether the reply contains the data or the list of children.
func TestUpdater_KeepsNewestStatOfChildren(t *testing.T) {
	runManual(t, func(m *manualUpdater) {
		data := m.start("/a", fetchData)
		m.read("/a", fetchList, 1, 1, 9, "b")
		m.u.handleReply(m.complete(data, 1, 3, 8))
		z, _ := m.u.tree.Get("/a")
		require.Equal(m, int64(9), z.Stat.Pzxid)
		require.Equal(m, int64(3), z.Stat.Mzxid)
		m.requireEvents("changed /a=")
	})
}

// TestUpdater_DropsRepliesOlderThanTree checks that the updater drops a reply of a server that lags behind,
// because the reply is older than the tree.
// Scenario 29 of docs/traps.md.
func TestUpdater_DropsRepliesOlderThanTree(t *testing.T) {
	runManual(t, func(m *manualUpdater) {
		m.read("/a/b", fetchData, 4, 5, 4)
		m.requireEvents("deleted /a/b", "created /a/b=")
		m.read("/a/b", fetchData, 4, 4, 4)
		m.read("/a/b", fetchData, 2, 7, 4)
		m.requireEvents()
		z, _ := m.u.tree.Get("/a/b")
		require.Equal(m, int64(5), z.Stat.Mzxid)
	})
}

// TestUpdater_KeepsListedChildAfterOlderReply checks that an older reply, which says that a child does not exist,
// does not remove the child after a newer list contains it.
// Scenario 29 of docs/traps.md.
func TestUpdater_KeepsListedChildAfterOlderReply(t *testing.T) {
	runManual(t, func(m *manualUpdater) {
		older := m.completeAbsent(m.start("/a/b", fetchData))
		m.read("/a", fetchList, 1, 1, 4, "b")
		m.u.handleReply(older)
		m.requireQueued("/a/b")
		m.requireEvents()
		m.u.handleReply(m.completeAbsent(m.start("/a/b", fetchData)))
		m.requireEvents("deleted /a/b")
	})
}

// TestUpdater_KeepsNewerChildAfterOlderList checks that an older list without a child does not remove the child if
// the child was created again after the list.
// Scenario 29 of docs/traps.md.
func TestUpdater_KeepsNewerChildAfterOlderList(t *testing.T) {
	runManual(t, func(m *manualUpdater) {
		older := m.start("/a", fetchList)
		m.read("/a/b", fetchData, 4, 4, 4)
		m.requireEvents("deleted /a/b", "created /a/b=")
		m.u.handleReply(m.complete(older, 1, 1, 3))
		m.requireEvents()
		m.read("/a", fetchList, 1, 1, 5)
		m.requireEvents("deleted /a/b")
	})
}

// TestUpdater_KeepsNewChildAfterLateDeletion checks that the updater does not remove a child that was deleted and
// created again. The client library delivers the deletion before a list that contains the new child, but the
// updater handles the deletion after the list. If the updater removed the new child, no further event would
// restore it.
// Scenario 29 of docs/traps.md.
func TestUpdater_KeepsNewChildAfterLateDeletion(t *testing.T) {
	t.Run("no reply in flight", func(t *testing.T) {
		runManual(t, func(m *manualUpdater) {
			old := m.findNode("/a/b").data.watch
			m.fire["list /a"](zk.EventNodeChildrenChanged)
			m.u.pollPart(&m.findNode("/a").list)
			m.fire["data /a/b"](zk.EventNodeDeleted)
			m.read("/a", fetchList, 1, 1, 4, "b")
			m.u.pollWatch(old)
			m.requireEvents("deleted /a/b")
			m.requireQueued("/a/b")
			m.read("/a/b", fetchData, 4, 4, 4)
			m.requireEvents("created /a/b=")
		})
	})
	t.Run("reply for the old child", func(t *testing.T) {
		runManual(t, func(m *manualUpdater) {
			m.fire["data /a/b"](zk.EventNodeDataChanged)
			m.u.pollPart(&m.findNode("/a/b").data)
			old := m.complete(m.start("/a/b", fetchData), 2, 3, 2)
			m.fire["data /a/b"](zk.EventNodeDeleted)
			m.read("/a", fetchList, 1, 1, 4, "b")
			m.u.handleReply(old)
			m.u.pollPart(&m.findNode("/a/b").data)
			m.requireQueued("/a/b")
			m.read("/a/b", fetchData, 4, 4, 4)
			m.requireEvents("deleted /a/b", "created /a/b=")
		})
	})
}

// TestUpdater_DefersChildUntilParentIsRead checks that the updater does not report a new child as a child of the
// previous parent, and then as deleted with the previous parent. The parent and the child are replaced, and the
// reply for the child arrives first.
// Scenario 29 of docs/traps.md.
func TestUpdater_DefersChildUntilParentIsRead(t *testing.T) {
	t.Run("the deletion of the parent was delivered", func(t *testing.T) {
		runManual(t, func(m *manualUpdater) {
			child := m.complete(m.start("/a/b", fetchData), 4, 4, 4)
			m.fire["data /a"](zk.EventNodeDeleted)
			m.fire["list /a"](zk.EventNodeDeleted)
			m.u.handleReply(child)
			m.requireEvents("deleted /a/b", "deleted /a")
		})
	})
	t.Run("the parent was replaced", func(t *testing.T) {
		runManual(t, func(m *manualUpdater) {
			m.changeParent()
			data, list := m.start("/a", fetchData), m.start("/a", fetchList)
			m.read("/a/b", fetchData, 4, 4, 4)
			m.requireEvents()
			require.False(m, m.findNode("/a/b").data.queued, "the reply is deferred")
			// Apply a list of another znode, which must not confirm the child.
			m.u.handleReply(m.complete(list, 3, 3, 4, "b"))
			m.requireEvents()
			m.u.handleReply(m.complete(data, 3, 3, 4))
			m.requireEvents("deleted /a/b", "deleted /a", "created /a=")
		})
	})
	t.Run("the parent was changed", func(t *testing.T) {
		runManual(t, func(m *manualUpdater) {
			m.changeParent()
			data := m.start("/a", fetchData)
			m.read("/a/b", fetchData, 4, 4, 4)
			require.False(m, m.findNode("/a/b").data.queued, "the reply is deferred")
			// This request was sent before the reply for the child arrived, so it must not confirm the child.
			m.u.handleReply(m.complete(data, 1, 3, 4))
			m.requireEvents("changed /a=")
			m.requireQueued("/a")
			m.read("/a", fetchData, 1, 3, 4)
			m.requireEvents("deleted /a/b", "created /a/b=")
		})
	})
	t.Run("the parent changes all the time", func(t *testing.T) {
		runManual(t, func(m *manualUpdater) {
			m.changeParent()
			m.read("/a/b", fetchData, 4, 4, 4)
			parent := m.complete(m.start("/a", fetchData), 1, 5, 4)
			m.fire["data /a"](zk.EventNodeDataChanged)
			m.u.handleReply(parent)
			m.requireEvents("changed /a=", "deleted /a/b", "created /a/b=")
		})
	})
}

// TestUpdater_DeferredParentConfirmsNoChild checks that a parent does not confirm its children while its own reply
// is deferred until the znode above the parent was read again.
// Scenario 29 of docs/traps.md.
func TestUpdater_DeferredParentConfirmsNoChild(t *testing.T) {
	runManual(t, func(m *manualUpdater) {
		m.read("/a/b", fetchList, 2, 2, 3, "c")
		m.read("/a/b/c", fetchData, 3, 3, 3)
		m.requireEvents("created /a/b/c=")
		m.fire["list /a/b"](zk.EventNodeDeleted)
		m.changeParent()
		data, list := m.start("/a", fetchData), m.start("/a/b", fetchList)
		child := m.start("/a/b/c", fetchData)
		m.read("/a/b", fetchData, 5, 5, 6)
		m.u.handleReply(m.complete(child, 6, 6, 6))
		m.requireEvents()
		m.u.handleReply(m.complete(list, 5, 5, 6, "c"))
		m.requireEvents()
		m.u.handleReply(m.complete(data, 4, 4, 5))
		m.requireEvents("deleted /a/b/c", "deleted /a/b", "deleted /a", "created /a=")
	})
}

// TestUpdater_KeepsZnodeAfterEventOfPreviousWatch checks that a late event of a previous watch does not remove a
// znode that the updater has read after the event.
// Scenario 29 of docs/traps.md.
func TestUpdater_KeepsZnodeAfterEventOfPreviousWatch(t *testing.T) {
	runManual(t, func(m *manualUpdater) {
		old, fire := m.findNode("/a/b").data.watch, m.fire["data /a/b"]
		f := m.start("/a/b", fetchData)
		fire(zk.EventNodeDeleted)
		m.u.handleReply(m.complete(f, 4, 4, 4)) // apply a read of the znode after it was created again
		m.u.handleEvent(old, zk.Event{Type: zk.EventNodeDeleted})
		m.requireEvents("deleted /a/b", "created /a/b=")
		m.requireQueued("/a/b")
	})
}
