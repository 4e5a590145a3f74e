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

// TestStrategies_PickDocumentedInstances checks that RoundRobin picks the instances in turn, that Random picks
// each about equally often, and that Sticky picks the same instance as long as it is in the list.
func TestStrategies_PickDocumentedInstances(t *testing.T) {
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

// TestChoose_SendsNoRequest checks that Choose sends no request, and that a provider reads the list once and sets
// one watch for each znode.
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

// TestWatch_DeliversNewestList checks that Watch delivers the newest list after instances were registered, updated
// and closed.
func TestWatch_DeliversNewestList(t *testing.T) {
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

// TestProvider_SkipsInstanceAfterTwoReports checks that a provider skips an instance after two reports, and for no
// longer than DownTimeout.
func TestProvider_SkipsInstanceAfterTwoReports(t *testing.T) {
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

// TestProvider_ReportsUnrecognizedChildren checks that a provider reports a child of the service that is not an
// instance, and that the child does not affect the instances.
// Scenario 34 of docs/traps.md.
func TestProvider_ReportsUnrecognizedChildren(t *testing.T) {
	bubble.Run(t, func(w *bubble.Test) {
		d := connect(w)
		p := newProvider(w, d)
		lists := p.Watch(w.Context())
		register(w, d, "a")
		putChild(w, d, "foreign", "10.0.0.1:80")
		putChild(w, d, "lock-x", "")
		_, err := d.setup.Conn.Create(shopPath+"/secret", nil, 0, zk.DigestACL(zk.PermAll, "u", "p"))
		require.NoError(w, err)
		bubble.Advance(time.Second)
		require.Equal(w, "a", instanceIDs(w, p))
		list := <-lists
		require.Len(w, list.Unreadable, 3)
		require.Equal(w, shopPath+"/foreign", list.Unreadable[0].Path)
		require.ErrorIs(w, list.Unreadable[0], recipes.ErrFormat)
		got, err := d.Instances(w.Context(), "shop")
		require.ErrorIs(w, err, recipes.ErrFormat)
		require.Len(w, got, 1)
		_, err = d.setup.Conn.Set(shopPath+"/foreign", []byte(`{"name":"shop","id":"f"}`), -1)
		require.NoError(w, err)
		bubble.Advance(time.Second)
		require.Equal(w, "a f", instanceIDs(w, p))
		require.NoError(w, p.Close())
	})
}

// TestProvider_AccumulatesNoWatches checks that breaks of the connection and expired sessions neither leave more
// watches behind nor lose a watch.
// Scenario 25 of docs/traps.md.
func TestProvider_AccumulatesNoWatches(t *testing.T) {
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

// TestProvider_ReadsInstanceRecreatedWithSameVersion checks that a provider reads an instance again that was
// deleted and created again, with the same version, while the client was disconnected.
// Scenario 28 of docs/traps.md.
func TestProvider_ReadsInstanceRecreatedWithSameVersion(t *testing.T) {
	for _, withService := range []bool{false, true} {
		t.Run(fmt.Sprint("with its service ", withService), func(t *testing.T) {
			bubble.Run(t, func(w *bubble.Test) {
				d, other := connect(w), connect(w)
				require.NoError(w, connection.MakeZnode(w.Context(), other.setup.Conn, shopPath, other.setup.ACL, false))
				putChild(w, other, "a", `{"name":"shop","id":"before"}`)
				p := newProvider(w, d)
				w.Server.Refuse(true)
				w.Server.DropConnections(d.setup.Conn.SessionID())
				require.NoError(w, other.setup.Conn.Delete(shopPath+"/a", -1))
				if withService {
					require.NoError(w, other.setup.Conn.Delete(shopPath, -1))
					require.NoError(w, create(other, shopPath))
				}
				putChild(w, other, "a", `{"name":"shop","id":"after"}`)
				require.Equal(w, "before", instanceIDs(w, p))
				w.Server.Refuse(false)
				bubble.Advance(10 * time.Second)
				require.Equal(w, "after", instanceIDs(w, p))
				require.NoError(w, other.setup.Conn.Delete(shopPath+"/a", -1))
				bubble.Advance(time.Second)
				require.Equal(w, "", instanceIDs(w, p), "watched again")
				require.NoError(w, p.Close())
			})
		})
	}
}

// TestProvider_IsNotBlockedBySlowReader checks that a user that does not read the channel of Watch does not block
// the provider.
// Scenario 30 of docs/traps.md.
func TestProvider_IsNotBlockedBySlowReader(t *testing.T) {
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

// TestProvider_CallsStrategyWithoutLock checks that a provider holds no mutex while it calls Pick: a strategy that
// calls the provider would deadlock.
// Scenario 30 of docs/traps.md.
func TestProvider_CallsStrategyWithoutLock(t *testing.T) {
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

// TestWatch_ReturnsIndependentChannels checks that each call of Watch returns another channel, which is closed
// when the context of the call is done or the provider ends.
func TestWatch_ReturnsIndependentChannels(t *testing.T) {
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

// TestProvider_ContinuesAfterTooLongList checks that a list that is larger than the receive buffer of the
// connection does not end the provider.
// Scenario 37 of docs/traps.md.
func TestProvider_ContinuesAfterTooLongList(t *testing.T) {
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
			require.NoError(w, d.setup.Conn.Delete(fmt.Sprintf("%s/%030d", shopPath, n), -1))
		}
		bubble.Advance(time.Minute)
		instances, err := p.Instances()
		require.NoError(w, err)
		require.Len(w, instances, 11)
		require.NoError(w, p.Close())
		require.NoError(w, first.Close())
	})
}

// TestReads_ReturnWhenContextIsDone checks that Provider, Instances and Names return when their context is done
// before the server answers.
func TestReads_ReturnWhenContextIsDone(t *testing.T) {
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

// TestProvider_ReportsTooLargeInstance checks that a provider reports an instance whose data the connection cannot
// receive, and uses the instance when its data has become smaller.
func TestProvider_ReportsTooLargeInstance(t *testing.T) {
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
		require.Equal(w, shopPath+"/large", list.Unreadable[0].Path)

		late := newProvider(w, d)
		require.Equal(w, "one two", instanceIDs(w, late))
		_, err := d.Instances(w.Context(), "shop")
		require.ErrorIs(w, err, recipes.ErrTooLarge)

		_, err = big.setup.Conn.Set(shopPath+"/large", []byte(`{"name":"shop","id":"large"}`), -1)
		require.NoError(w, err)
		bubble.Advance(time.Minute)
		require.Equal(w, "large one two", instanceIDs(w, p))
	})
}

// TestProvider_MissesNoChangeAfterLossOfWatches checks that closed providers leave only one watch for each znode
// behind, and that a new provider misses no changes if the client library has lost these watches at a reconnect.
// Scenario 27 of docs/traps.md.
func TestProvider_MissesNoChangeAfterLossOfWatches(t *testing.T) {
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
