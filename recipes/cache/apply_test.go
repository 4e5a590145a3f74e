package cache

import (
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/setup"
	shared "github.com/go-leaderelection/leaderelection/internal/zk/watch"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// stage is an owner that the test plays: it hands in answers and events in the
// order that it wants. They arrive in the order of the connection, but each on a
// goroutine of its own.
type stage struct {
	*owner
	t *testing.T
	// By kind and path:
	watching map[string]*shared.Watch
	fires    map[string]func(zk.EventType)
}

func onStage(t *testing.T, test func(s *stage)) {
	synctest.Test(t, func(t *testing.T) {
		conn := connect(t, zktest.Start(t))
		own := settings{concurrency: 64}
		s, err := setup.NewOwn(conn, "/a", &own, []recipes.Option{recipes.WithSessionTimeout(timeout)})
		require.NoError(t, err)
		c := &Cache{
			memory: memory{root: newZnode(nil, "/a")}, path: "/a", events: make(chan Event),
			filled: make(chan struct{}), done: make(chan struct{}), closing: make(chan struct{}), asked: newMailbox[*caller](),
		}
		o := newOwner(c, s, own, Subtree)
		defer o.end()
		test(&stage{o, t, map[string]*shared.Watch{}, map[string]func(zk.EventType){}})
	})
}

// ask is a request for what the znode at path has, sent now.
func (s *stage) ask(path string, op operation) *answer {
	n := s.find(path)
	require.NotNil(s.t, n, path)
	a := &answer{n: n, op: op, watching: true, epoch: s.epoch, sent: s.tick()}
	if op == getChildren {
		a.kind = childWatch
	}
	asp := n.aspect(a.kind)
	asp.busy, asp.dirty, asp.queued = true, false, false
	s.inFlight++
	return a
}

// with is the answer, and brings a watch.
func (a *answer) with(s *stage, czxid, mzxid, pzxid int64, children ...string) *answer {
	a.stat, a.children, a.exists = &zk.Stat{Czxid: czxid, Mzxid: mzxid, Pzxid: pzxid}, children, true
	key := "data " + a.n.path
	if a.op == getChildren {
		key = "children " + a.n.path
	}
	if s.watching[key] == nil {
		ch, fire := channel()
		s.watching[key] = shared.New(ch)
		s.fires[key] = func(typ zk.EventType) {
			fire(typ)
			delete(s.fires, key)
			delete(s.watching, key)
		}
	}
	a.watch = s.watching[key]
	return a
}

// told is what the feed holds, and takes it out.
func (s *stage) told() (list []string) {
	for s.feed.first != nil {
		list = append(list, text(s.feed.next()))
		s.feed.sent()
	}
	return list
}

// begin has /a, of zxid 1, and /a/b, of zxid 2, in memory.
func (s *stage) begin() {
	s.answered(s.ask("/a", getData).with(s, 1, 1, 2))
	s.answered(s.ask("/a", getChildren).with(s, 1, 1, 2, "b"))
	s.answered(s.ask("/a/b", getData).with(s, 2, 2, 2))
	s.answered(s.ask("/a/b", getChildren).with(s, 2, 2, 2))
	require.Equal(s.t, []string{"created /a=", "created /a/b="}, s.told())
	require.Zero(s.t, s.owed)
}

// An answer that is older than memory, of a server that lags behind, is dropped.
func TestTrap29_OlderAnswersAreDropped(t *testing.T) {
	onStage(t, func(s *stage) {
		s.begin()
		s.answered(s.ask("/a/b", getData).with(s, 4, 5, 4))
		require.Equal(t, []string{"deleted /a/b", "created /a/b="}, s.told())
		s.answered(s.ask("/a/b", getData).with(s, 4, 4, 4))
		s.answered(s.ask("/a/b", getData).with(s, 2, 7, 4))
		require.Empty(t, s.told())
		z, _ := s.Get("/a/b")
		require.Equal(t, int64(5), z.Stat.Mzxid)
	})
}

// A child is not there, is created, is listed; the listing is taken in first.
func TestTrap29_ListingBeforeAnOlderAnswer(t *testing.T) {
	onStage(t, func(s *stage) {
		s.begin()
		before := s.ask("/a/b", getData)
		before.err = zk.ErrNoNode
		s.answered(s.ask("/a", getChildren).with(s, 1, 1, 4, "b"))
		s.answered(before)
		require.NotNil(t, s.find("/a/b"))
		require.True(t, s.find("/a/b").data.queued, "asked for again")
		require.Empty(t, s.told())
		after := s.ask("/a/b", getData)
		after.err = zk.ErrNoNode
		s.answered(after)
		require.Equal(t, []string{"deleted /a/b"}, s.told(), "that is newer than the listing")
	})
}

// A child is gone, is listed no more, and created anew; the new one is taken in
// before the listing.
func TestTrap29_ListingAfterANewerAnswer(t *testing.T) {
	onStage(t, func(s *stage) {
		s.begin()
		before := s.ask("/a", getChildren)
		s.answered(s.ask("/a/b", getData).with(s, 4, 4, 4))
		require.Equal(t, []string{"deleted /a/b", "created /a/b="}, s.told())
		s.answered(before.with(s, 1, 1, 3))
		require.Empty(t, s.told())
		s.answered(s.ask("/a", getChildren).with(s, 1, 1, 5))
		require.Equal(t, []string{"deleted /a/b"}, s.told())
	})
}

// A child is gone and created anew, then listed. Its end, which the client has told
// before it hands on the listing, is heard after it: it is not that of the new one,
// which nothing else would tell of.
func TestTrap29_EndHeardAfterANewerListing(t *testing.T) {
	onStage(t, func(s *stage) {
		s.begin()
		old := s.find("/a/b").data.watch
		s.fires["children /a"](zk.EventNodeChildrenChanged)
		s.fired(s.root.list.watch)
		s.fires["data /a/b"](zk.EventNodeDeleted)
		s.answered(s.ask("/a", getChildren).with(s, 1, 1, 4, "b"))
		s.fired(old)
		require.Equal(t, []string{"deleted /a/b"}, s.told())
		require.NotNil(t, s.find("/a/b"))
		require.True(t, s.find("/a/b").data.queued, "the new one is asked for")
		s.answered(s.ask("/a/b", getData).with(s, 4, 4, 4))
		require.Equal(t, []string{"created /a/b="}, s.told())
	})
	onStage(t, func(s *stage) {
		s.begin()
		// The old one's answer is taken in after the listing too.
		s.fires["data /a/b"](zk.EventNodeDataChanged)
		s.fired(s.find("/a/b").data.watch)
		before := s.ask("/a/b", getData).with(s, 2, 3, 2)
		s.fires["data /a/b"](zk.EventNodeDeleted)
		s.answered(s.ask("/a", getChildren).with(s, 1, 1, 4, "b"))
		s.answered(before)
		require.NotNil(t, s.find("/a/b"))
		if w := s.find("/a/b").data.watch; w != nil {
			s.fired(w)
			require.NotNil(t, s.find("/a/b"))
		}
		require.True(t, s.find("/a/b").data.queued, "the new one is asked for")
		s.answered(s.ask("/a/b", getData).with(s, 4, 4, 4))
		require.Equal(t, []string{"deleted /a/b", "created /a/b="}, s.told())
	})
}

// Parent and child are replaced; the child is taken in first. It must not be told as
// a child of the old parent, and then as deleted with it.
func TestTrap29_ChildBeforeItsNewParent(t *testing.T) {
	onStage(t, func(s *stage) {
		s.begin()
		child := s.ask("/a/b", getData).with(s, 4, 4, 4)
		s.fires["data /a"](zk.EventNodeDeleted)
		s.fires["children /a"](zk.EventNodeDeleted)
		s.answered(child)
		require.Equal(t, []string{"deleted /a/b", "deleted /a"}, s.told(), "the event was there before the answer")
	})
	onStage(t, func(s *stage) {
		s.begin()
		// Both watches have fired for less, and the parent is being read.
		s.fires["data /a"](zk.EventNodeDataChanged)
		s.fires["children /a"](zk.EventNodeChildrenChanged)
		s.fired(s.root.data.watch)
		s.fired(s.root.list.watch)
		data, list := s.ask("/a", getData), s.ask("/a", getChildren)
		s.answered(s.ask("/a/b", getData).with(s, 4, 4, 4))
		require.Empty(t, s.told())
		require.False(t, s.find("/a/b").data.queued, "it waits for its parent")
		s.answered(list.with(s, 3, 3, 4, "b"))
		require.Empty(t, s.told(), "a listing of another parent is no witness")
		s.answered(data.with(s, 3, 3, 4))
		require.Equal(t, []string{"deleted /a/b", "deleted /a", "created /a="}, s.told())
	})
	onStage(t, func(s *stage) {
		s.begin()
		s.fires["data /a"](zk.EventNodeDataChanged)
		s.fires["children /a"](zk.EventNodeChildrenChanged)
		s.fired(s.root.data.watch)
		s.fired(s.root.list.watch)
		data := s.ask("/a", getData)
		s.answered(s.ask("/a/b", getData).with(s, 4, 4, 4))
		require.False(t, s.find("/a/b").data.queued, "it waits for its parent")
		s.answered(data.with(s, 1, 3, 4))
		require.Equal(t, []string{"changed /a="}, s.told(), "what was asked for before is no witness")
		require.True(t, s.root.data.queued)
		s.answered(s.ask("/a", getData).with(s, 1, 3, 4))
		require.Equal(t, []string{"deleted /a/b", "created /a/b="}, s.told())
	})
	onStage(t, func(s *stage) {
		s.begin()
		// A parent that changes all the time is a witness all the same.
		s.fires["data /a"](zk.EventNodeDataChanged)
		s.fires["children /a"](zk.EventNodeChildrenChanged)
		s.fired(s.root.data.watch)
		s.fired(s.root.list.watch)
		s.answered(s.ask("/a/b", getData).with(s, 4, 4, 4))
		parent := s.ask("/a", getData).with(s, 1, 5, 4)
		s.fires["data /a"](zk.EventNodeDataChanged)
		s.answered(parent)
		require.Equal(t, []string{"changed /a=", "deleted /a/b", "created /a/b="}, s.told())
	})
}

// The same one level further down: a parent whose new life is not believed yet is no
// witness.
func TestTrap29_DoubtfulParent(t *testing.T) {
	onStage(t, func(s *stage) {
		s.begin()
		s.answered(s.ask("/a/b", getChildren).with(s, 2, 2, 3, "c"))
		s.answered(s.ask("/a/b/c", getData).with(s, 3, 3, 3))
		s.told()
		s.fires["data /a"](zk.EventNodeDataChanged)
		s.fires["children /a"](zk.EventNodeChildrenChanged)
		s.fires["children /a/b"](zk.EventNodeDeleted)
		s.fired(s.root.data.watch)
		s.fired(s.root.list.watch)
		data, list := s.ask("/a", getData), s.ask("/a/b", getChildren)
		child := s.ask("/a/b/c", getData)
		s.answered(s.ask("/a/b", getData).with(s, 5, 5, 6))
		s.answered(child.with(s, 6, 6, 6))
		require.Empty(t, s.told())
		s.answered(list.with(s, 5, 5, 6, "c"))
		require.Empty(t, s.told())
		s.answered(data.with(s, 4, 4, 5))
		require.Equal(t, []string{"deleted /a/b/c", "deleted /a/b", "deleted /a", "created /a="}, s.told())
	})
}

// The event of an old watch, which comes late, does not speak of what was read
// since.
func TestTrap29_LateEvent(t *testing.T) {
	onStage(t, func(s *stage) {
		s.begin()
		old := s.find("/a/b").data.watch
		fire := s.fires["data /a/b"]
		again := s.ask("/a/b", getData)
		fire(zk.EventNodeDeleted)
		s.answered(again.with(s, 4, 4, 4)) // read after it was created anew
		s.heard(old, zk.Event{Type: zk.EventNodeDeleted})
		require.Equal(t, []string{"deleted /a/b", "created /a/b="}, s.told())
		require.True(t, s.find("/a/b").data.queued, "read once more, to be sure")
	})
}

// What is about to be asked for is asked for once, even if its watch turns out to have
// fired.
func TestAskedForOnce(t *testing.T) {
	onStage(t, func(s *stage) {
		s.begin()
		n := s.find("/a/b")
		s.reread(n)
		s.fires["data /a/b"](zk.EventNodeDataChanged)
		require.True(t, s.owner.ask(task{n, dataWatch}))
		require.True(t, n.data.busy)
		require.False(t, n.data.queued)
		synctest.Wait()
	})
}

// A listing says what belongs to it of a Stat, whichever answer comes first.
func TestStatFollowsTheChildren(t *testing.T) {
	onStage(t, func(s *stage) {
		s.begin()
		data := s.ask("/a", getData)
		s.answered(s.ask("/a", getChildren).with(s, 1, 1, 9, "b"))
		s.answered(data.with(s, 1, 3, 8))
		z, _ := s.Get("/a")
		require.Equal(t, int64(9), z.Stat.Pzxid)
		require.Equal(t, int64(3), z.Stat.Mzxid)
		require.Equal(t, []string{"changed /a="}, s.told())
	})
}
