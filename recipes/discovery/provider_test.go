package discovery

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestStrategy_PicksInOrder checks that a strategy chooses the instances in its order, and as often as it should.
func TestStrategy_PicksInOrder(t *testing.T) {
	three := []Instance{instance("a"), instance("b"), instance("c")}
	pick := func(s Strategy, from []Instance) string { return from[s.Pick(from)].ID }
	robin := RoundRobin()
	var picked string
	for range 7 {
		picked += pick(robin, three)
	}
	require.Equal(t, "abcabca", picked)
	seen := map[string]int{}
	for range 3000 {
		seen[pick(Random(), three)]++
	}
	for _, n := range seen {
		require.InDelta(t, 1000, n, 200)
	}
	require.Len(t, seen, 3)
	stick := Sticky(nil)
	require.Equal(t, "a", pick(stick, three))
	require.Equal(t, "a", pick(stick, three))
	three[0].Payload = json.RawMessage("1")
	slices.Reverse(three)
	require.Equal(t, "a", pick(stick, three), "at another position, with a payload")
	require.Equal(t, "b", pick(stick, three[:2]), "the next of the strategy over")
	require.Equal(t, "b", pick(stick, three))
	three[1].Registered++
	require.NotPanics(t, func() { pick(stick, three) })
}

// TestChoose_SendsNoRequest checks that Choose does not send a request, and that a list is read once with a
// watch for each znode.
func TestChoose_SendsNoRequest(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d := connect(w)
		for _, id := range []string{"a", "b", "c"} {
			register(w, d, id)
		}
		other := connect(w)
		w.Server.ResetLog()
		p := newProvider(w, other)
		lists := p.Watch(w.Context())
		require.Equal(w, 4, len(w.Server.Log().Requests()))
		require.Len(w, w.Server.Watches(), 3+4, "three of the registrations")
		w.Server.ResetLog()
		var chosen string
		for range 6 {
			i, err := p.Choose()
			require.NoError(w, err)
			chosen += i.ID
		}
		require.Equal(w, "abcabc", chosen)
		require.Empty(w, w.Server.Log().Requests())
		require.NoError(w, p.Close())
		require.NoError(w, p.Close())
		_, err := p.Choose()
		require.ErrorIs(w, err, recipes.ErrClosed)
		for range lists { // read until the channel is closed
		}
	})
}

// TestChanges_DeliversTheNewestList checks that a change of the instances is delivered.
func TestChanges_DeliversTheNewestList(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		p := newProvider(w, connect(w))
		lists := p.Watch(w.Context())
		require.Equal(w, List{}, <-lists)
		_, err := p.Choose()
		require.ErrorIs(w, err, ErrNoInstance)
		d := connect(w)
		a, b := register(w, d, "a"), register(w, d, "b")
		bubble.Advance(time.Second)
		require.Len(w, (<-lists).Instances, 2, "only the newest list")
		i := a.Instance()
		i.Disabled = true
		require.NoError(w, a.Update(w.Context(), i))
		bubble.Advance(time.Second)
		require.Equal(w, "b", instanceIDs(w, p))
		require.Len(w, (<-lists).Instances, 1)
		i.Disabled, i.Payload = false, json.RawMessage("5")
		require.NoError(w, a.Update(w.Context(), i))
		require.NoError(w, b.Close())
		bubble.Advance(time.Second)
		require.Equal(w, []Instance{i}, (<-lists).Instances)
		require.NoError(w, a.Close())
		bubble.Advance(time.Second)
		require.Equal(w, List{}, <-lists)
		require.NoError(w, p.Close())
	})
}

// TestReport_InstancesAreSkipped checks that an instance is skipped after two reports, and for no longer
// than DownTimeout.
func TestReport_InstancesAreSkipped(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d := connect(w)
		a, _ := register(w, d, "a"), register(w, d, "b")
		p := newProvider(w, d)
		p.Report(a.Instance())
		require.Equal(w, "a b", instanceIDs(w, p), "after one report")
		bubble.Advance(20 * time.Second)
		p.Report(a.Instance())
		require.Equal(w, "b", instanceIDs(w, p))
		i := a.Instance()
		i.Payload = json.RawMessage("5")
		require.NoError(w, a.Update(w.Context(), i))
		bubble.Advance(time.Second)
		require.Equal(w, "b", instanceIDs(w, p), "an update does not discard the reports")
		bubble.Advance(10 * time.Second)
		require.Equal(w, "a b", instanceIDs(w, p), "30 s after the first report")
		p.Report(a.Instance())
		require.Equal(w, "a b", instanceIDs(w, p), "after the first report of a new count")
		require.NoError(w, p.Close())
	})
}

// TestTrap34_UnrecognizedChildren checks that a child that is not an instance is reported, and does not
// affect the instances.
func TestTrap34_UnrecognizedChildren(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d := connect(w)
		p := newProvider(w, d)
		lists := p.Watch(w.Context())
		register(w, d, "a")
		putChild(w, d, "foreign", "10.0.0.1:80")
		putChild(w, d, "lock-x", "")
		_, err := d.setup.Conn.Create(shop+"/secret", nil, 0, zk.DigestACL(zk.PermAll, "u", "p"))
		require.NoError(w, err)
		bubble.Advance(time.Second)
		require.Equal(w, "a", instanceIDs(w, p))
		list := <-lists
		require.Len(w, list.Unreadable, 3)
		require.Equal(w, shop+"/foreign", list.Unreadable[0].Path)
		require.ErrorIs(w, list.Unreadable[0], recipes.ErrFormat)
		got, err := d.Instances(w.Context(), "shop")
		require.ErrorIs(w, err, recipes.ErrFormat)
		require.Len(w, got, 1)
		_, err = d.setup.Conn.Set(shop+"/foreign", []byte(`{"name":"shop","id":"f"}`), -1)
		require.NoError(w, err)
		bubble.Advance(time.Second)
		require.Equal(w, "a f", instanceIDs(w, p))
		require.NoError(w, p.Close())
	})
}

// TestTrap25_WatchesDoNotAddUp checks that breaks of the connection and expired sessions neither leave more
// watches behind nor lose a watch.
func TestTrap25_WatchesDoNotAddUp(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d, other := connect(w), connect(w)
		a := register(w, other, "a")
		p := newProvider(w, d)
		for n := range 20 {
			w.Server.DropConnections(d.setup.Conn.SessionID())
			if n%5 == 4 {
				require.NoError(w, w.Server.ExpireSession(d.setup.Conn.SessionID()))
			}
			bubble.Advance(10 * time.Second)
			i := a.Instance()
			i.Port = 100 + n
			require.NoError(w, a.Update(w.Context(), i))
			bubble.Advance(time.Second)
			got, err := p.Choose()
			require.NoError(w, err)
			require.Equal(w, i.Port, got.Port)
			require.Len(w, w.Server.Watches(), 1+2, "%v", w.Server.Watches())
		}
		require.NoError(w, p.Close())
	})
}

// TestTrap28_CreatedAgainWithTheSameVersion checks that an instance that was deleted and created again while
// the client was disconnected, with the same version, is read again.
func TestTrap28_CreatedAgainWithTheSameVersion(t *testing.T) {
	for _, withService := range []bool{false, true} {
		t.Run(fmt.Sprint("with its service ", withService), func(t *testing.T) {
			bubble.Run(t, func(w *bubble.Test) {
				d, other := connect(w), connect(w)
				require.NoError(w, connection.MakeZnode(w.Context(), other.setup.Conn, shop, other.setup.ACL, false))
				putChild(w, other, "a", `{"name":"shop","id":"before"}`)
				p := newProvider(w, d)
				w.Server.Refuse(true)
				w.Server.DropConnections(d.setup.Conn.SessionID())
				require.NoError(w, other.setup.Conn.Delete(shop+"/a", -1))
				if withService {
					require.NoError(w, other.setup.Conn.Delete(shop, -1))
					require.NoError(w, create(other, shop))
				}
				putChild(w, other, "a", `{"name":"shop","id":"after"}`)
				require.Equal(w, "before", instanceIDs(w, p))
				w.Server.Refuse(false)
				bubble.Advance(10 * time.Second)
				require.Equal(w, "after", instanceIDs(w, p))
				require.NoError(w, other.setup.Conn.Delete(shop+"/a", -1))
				bubble.Advance(time.Second)
				require.Equal(w, "", instanceIDs(w, p), "watched again")
				require.NoError(w, p.Close())
			})
		})
	}
}

// TestTrap30_SlowReader checks that a user that does not read the channel does not block the provider.
func TestTrap30_SlowReader(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d := connect(w)
		p := newProvider(w, d)
		lists := p.Watch(w.Context())
		for n := range 20 {
			register(w, d, fmt.Sprint(n))
		}
		bubble.Advance(time.Second)
		require.Len(w, (<-lists).Instances, 20)
		require.NoError(w, p.Close())
	})
}

// reentrant is a strategy whose Pick calls the provider.
type reentrant struct{ p *Provider }

func (s *reentrant) Pick(from []Instance) int {
	s.p.Report(from[0])
	_, _ = s.p.Instances()
	return 0
}

// TestTrap30_StrategyIsCalledWithoutALock checks that a strategy is not called while a mutex is held.
func TestTrap30_StrategyIsCalledWithoutALock(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d := connect(w)
		register(w, d, "a")
		s := &reentrant{}
		s.p = newProvider(w, d, WithStrategy(s))
		_, err := s.p.Choose()
		require.NoError(w, err)
		require.NoError(w, s.p.Close())
	})
}

// Each call of Watch has a channel, which is closed when its context is done or the provider ends.
func TestProvider_WatchTwice(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d := connect(w)
		p := newProvider(w, d)
		ctx, cancel := context.WithCancel(w.Context())
		first, second := p.Watch(ctx), p.Watch(w.Context())
		require.Empty(w, (<-first).Instances)
		r := register(w, d, "one")
		bubble.Advance(time.Second)
		require.Len(w, (<-first).Instances, 1)
		require.Len(w, (<-second).Instances, 1)
		cancel()
		_, open := <-first
		require.False(w, open)
		require.NoError(w, r.Close())
		bubble.Advance(time.Second)
		require.Empty(w, (<-second).Instances)
		require.NoError(w, p.Close())
		_, open = <-second
		require.False(w, open)
		require.NoError(w, (<-p.Watch(w.Context())).Err)
		bubble.Advance(time.Second)
		require.Empty(w, p.watching)
	})
}

// TestTrap37_ListTooLong checks that a list that is larger than the receive buffer of the connection does not
// end the provider.
func TestTrap37_ListTooLong(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		small := connect(w, zk.WithMaxBufferSize(8<<10))
		d := connect(w)
		p := newProvider(w, small)
		lists := p.Watch(w.Context())
		first := register(w, d, "first")
		bubble.Advance(time.Second)
		require.Equal(w, "first", instanceIDs(w, p))
		for n := range 400 {
			putChild(w, d, fmt.Sprintf("%030d", n), "{}")
		}
		bubble.Advance(time.Minute)
		require.ErrorIs(w, (<-lists).Cause, recipes.ErrTooLarge)
		require.Contains(w, instanceIDs(w, p), "first", "the last list")
		_, err := small.Instances(w.Context(), "shop")
		require.ErrorIs(w, err, recipes.ErrTooLarge)
		_, err = small.Provider(w.Context(), "shop")
		require.ErrorIs(w, err, recipes.ErrTooLarge)
		for n := range 390 {
			require.NoError(w, d.setup.Conn.Delete(fmt.Sprintf("%s/%030d", shop, n), -1))
		}
		bubble.Advance(time.Minute)
		instances, err := p.Instances()
		require.NoError(w, err)
		require.Len(w, instances, 11)
		require.NoError(w, p.Close())
		require.NoError(w, first.Close())
	})
}

// TestProvider_ContextIsDoneFirst checks that a read of a server that does not answer returns when its
// context is done.
func TestProvider_ContextIsDoneFirst(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d := connect(w)
		w.Server.Pause()
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, err := d.Provider(ctx, "shop")
		require.ErrorIs(w, err, context.DeadlineExceeded)
		_, err = d.Instances(ctx, "shop")
		require.ErrorIs(w, err, context.DeadlineExceeded)
		_, err = d.Names(ctx)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		w.Server.Resume()
		synctest.Wait()
	})
}

// TestProvider_InstanceTooLarge checks that an instance whose data the connection cannot receive is reported,
// and is used when it has become smaller.
func TestProvider_InstanceTooLarge(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		big := connect(w, zk.WithMaxBufferSize(0))
		register(w, big, "one")
		d := connect(w)
		p := newProvider(w, d)
		lists := p.Watch(w.Context())
		require.Equal(w, "one", instanceIDs(w, p))
		putChild(w, big, "large", strings.Repeat("x", 100<<10))
		register(w, big, "two")
		bubble.Advance(time.Minute)
		require.Equal(w, "one two", instanceIDs(w, p))
		list := <-lists
		require.NoError(w, list.Cause)
		require.Len(w, list.Unreadable, 1)
		require.ErrorIs(w, list.Unreadable[0], recipes.ErrTooLarge)
		require.Equal(w, shop+"/large", list.Unreadable[0].Path)

		late := newProvider(w, d)
		require.Equal(w, "one two", instanceIDs(w, late))
		_, err := d.Instances(w.Context(), "shop")
		require.ErrorIs(w, err, recipes.ErrTooLarge)

		_, err = big.setup.Conn.Set(shop+"/large", []byte(`{"name":"shop","id":"large"}`), -1)
		require.NoError(w, err)
		bubble.Advance(time.Minute)
		require.Equal(w, "large one two", instanceIDs(w, p))
	})
}

// TestTrap27_PooledWatchesAreLost checks that providers that were closed leave only one watch for each znode
// behind, and that a provider misses no changes when these watches were lost at a reconnect.
func TestTrap27_PooledWatchesAreLost(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d, other := connect(w), connect(w)
		a := register(w, other, "a")
		conn := d.setup.Conn
		for range 20 {
			require.NoError(w, newProvider(w, d).Close())
			require.Equal(w, 2, bubble.Watches(conn))
		}
		loseWatches := func() {
			refused := w.Server.Before(zktest.Match{Op: zktest.OpSetWatches, Session: conn.SessionID(), Nth: 1}, zktest.Fail(zktest.Code(-127)))
			w.Server.DropConnections(conn.SessionID())
			bubble.Advance(1500 * time.Millisecond)
			<-refused.Ran()
		}
		loseWatches()
		p := newProvider(w, d)
		bubble.Advance(3 * time.Second)
		for port := range 2 {
			i := a.Instance()
			i.Port = 100 + port
			require.NoError(w, a.Update(w.Context(), i))
			bubble.Advance(0)
			got, err := p.Choose()
			require.NoError(w, err)
			require.Equal(w, i.Port, got.Port)
			b := register(w, other, "b")
			bubble.Advance(0)
			require.Equal(w, "a b", instanceIDs(w, p))
			require.NoError(w, b.Close())
			bubble.Advance(0)
			loseWatches() // the watches are lost while the provider uses them
		}
		require.NoError(w, p.Close())
	})
}
