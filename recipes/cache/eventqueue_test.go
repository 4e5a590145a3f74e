package cache

import (
	"fmt"
	"math/rand/v2"
	"path"
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
)

// TestEventQueue_ReproducesTreeAfterRandomChanges adds random changes of a tree to the queue, and receives events
// at random times. A reader must be able to apply each event, and must have the same tree after the last event.
// The queue must never be longer than the number of znodes that the reader knows and those in the tree.
func TestEventQueue_ReproducesTreeAfterRandomChanges(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		q, r := newEventQueue(), newReplica()
		c := &Cache{tree: tree{root: newNode(nil, "/a")}, path: "/a"}
		znodes := map[string]*Znode{}
		zxid, fresh := int64(0), false
		var remove func(p string)
		remove = func(p string) {
			for child := range znodes {
				if path.Dir(child) == p {
					remove(child)
				}
			}
			if z := znodes[p]; z != nil {
				q.addDeleted(z)
				delete(znodes, p)
			}
		}
		receive := func() {
			r.apply(c, q.firstEvent())
			q.removeFirst()
		}
		for range 300 {
			zxid++
			p := "/a"
			for range random.IntN(4) {
				p += "/" + string(rune('a'+random.IntN(2)))
			}
			z := &Znode{Path: p, Data: fmt.Append(nil, zxid), Stat: zk.Stat{Czxid: zxid, Mzxid: zxid}}
			old := znodes[p]
			switch action := random.IntN(7); {
			case action < 2 && old == nil && (p == "/a" || znodes[path.Dir(p)] != nil):
				znodes[p] = z
				q.addCreated(z)
			case action == 2 && old != nil:
				z.Stat.Czxid = old.Stat.Czxid
				znodes[p] = z
				q.addChanged(old, z)
			case action == 3:
				remove(p)
			case action == 4 && random.IntN(4) == 0:
				fresh = !fresh
				q.addConnection(map[bool]Kind{true: Fresh, false: Stale}[fresh])
			case !q.isEmpty() && random.IntN(3) > 0:
				receive()
			}
			length := 0
			for e := q.head; e != nil; e = e.next {
				length++
			}
			require.LessOrEqual(t, length, len(r.nodes)+len(znodes)+1)
		}
		for !q.isEmpty() {
			receive()
		}
		require.Empty(t, r.violations, "seed %d", seed)
		require.Empty(t, q.paths)
		require.Equal(t, !fresh, r.stale)
		require.Len(t, r.nodes, len(znodes))
		for p, z := range znodes {
			require.Equal(t, *z, r.nodes[p])
		}
	}
}

// TestCache_IsNotDelayedBySlowReader checks that a program that receives events late does not delay the cache,
// that the queue of events does not grow without a limit, and that the program receives the newest state.
// Scenario 30 of docs/traps.md.
func TestCache_IsNotDelayedBySlowReader(t *testing.T) {
	runInBubble(t, func(h *bubble.Test) {
		create(h, "/a")
		createWith(h, "/a/old", "1")
		c := openCache(h, "/a", Children)
		<-c.Filled()
		for range 3 {
			require.Contains(h, []Kind{Created, Fresh}, (<-c.Events()).Kind)
		}
		for i := range 200 {
			set(h, "/a/old", fmt.Sprint(i))
			createWith(h, "/a/new", fmt.Sprint(i))
			synctest.Wait()
			if i < 199 {
				remove(h, "/a/new")
				synctest.Wait()
			}
		}
		remove(h, "/a/old")
		createWith(h, "/a/old", "again")
		for range 3 {
			reconnect(h, c, func() {})
		}
		z, _ := c.Get("/a/old")
		require.Equal(h, "again", string(z.Data), "the cache waits for the reader")
		var events []string
		for len(events) < 3 {
			e := <-c.Events()
			events = append(events, eventText(e))
			if e.Kind == Deleted {
				require.Equal(h, "1", string(e.Old.Data), "the state that was reported before")
			}
		}
		require.Equal(h, []string{"created /a/new=199", "deleted /a/old", "created /a/old=again"}, events)
		synctest.Wait()
		select {
		case e := <-c.Events():
			h.Fatalf("the cache delivers a further event: %v", e)
		default:
		}
	})
}
