package raftlog_test

// What most tests do with a world.

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// inWorld runs a test in a bubble, in a world of n founding peers that run.
func inWorld(t *testing.T, n int, f func(t *testing.T, w *world), opts ...func(*raftlog.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, n)
		w.startAll(opts...)
		f(t, w)
	})
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// await waits, in fake time, until something is so.
func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (w *world) node(p api.Peer) *raftlog.Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[p.ID]
}

func (w *world) sm(p api.Peer) *register {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sms[p.ID]
}

// leads tells whether the peer leads the log, and has confirmed that lately.
func leads(n *raftlog.Node) bool {
	i := n.Info()
	return i.Role == "leader" && i.Lease > 0
}

// leader waits for a peer that leads the log.
func (w *world) leader(t testing.TB) api.Peer {
	t.Helper()
	var leader api.Peer
	await(t, "a leader", func() bool {
		for _, n := range w.all() {
			if leads(n) {
				leader = n.Info().Peer
				return true
			}
		}
		return false
	})
	return leader
}

// others are the peers of the world but for some.
func (w *world) others(but ...api.Peer) []api.Peer {
	return slices.DeleteFunc(slices.Clone(w.peers), func(p api.Peer) bool { return slices.Contains(but, p) })
}

// stop closes a peer in order.
func (w *world) stop(p api.Peer) error {
	w.mu.Lock()
	n := w.nodes[p.ID]
	delete(w.nodes, p.ID)
	w.mu.Unlock()
	return n.Close()
}

// crash is a power failure at a peer: nobody hears from it any more, and of what it has not
// synced any part is on its disk.
func (w *world) crash(p api.Peer) {
	heal := w.isolate(p)
	w.mu.Lock()
	w.disks[p.ID] = w.disks[p.ID].Crash()
	w.mu.Unlock()
	for _, q := range w.others(p) {
		w.net.Reset(p.Addr, q.Addr)
	}
	_ = w.stop(p)
	heal()
}

// propose has the updates applied, by one peer, one after the other.
func (w *world) propose(t testing.TB, p api.Peer, updates ...string) {
	t.Helper()
	for _, u := range updates {
		_, err := w.node(p).Propose(within(t, time.Minute), requestid.New(), []byte(u))
		require.NoError(t, err)
	}
}

// insist proposes until the outcome is known.
func insist(t testing.TB, n *raftlog.Node, id requestid.ID, update string) uint64 {
	t.Helper()
	for {
		index, err := n.Propose(within(t, time.Minute), id, []byte(update))
		if err == nil {
			return index
		}
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
	}
}

// has waits until the state machine of each of the peers has just these updates.
func (w *world) has(t testing.TB, peers []api.Peer, updates ...string) {
	t.Helper()
	for _, p := range peers {
		require.NoError(t, w.node(p).Sync(within(t, time.Minute)), "sync at %s", p.ID)
		require.Equal(t, updates, w.sm(p).all(), "at %s", p.ID)
	}
}

// few are updates with names of their own.
func few(name string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprint(name, i))
	}
	return all
}

// slowly has a cluster with election timeouts of four seconds, for tests in which minutes pass.
func slowly(c *raftlog.Config) { c.ElectionTimeout, c.Heartbeat = 4*time.Second, 800*time.Millisecond }
