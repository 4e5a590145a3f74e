package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// TestEndedElectionsAreForgotten: peers keep ended elections only for one window, so that their
// number does not grow with the number of elections that were ever ended.
func TestEndedElectionsAreForgotten(t *testing.T) {
	const windows, each = 4, 1500
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	number := uint64(0)
	for range windows {
		l := w.leader()
		for range each {
			number++
			id := requestid.From(l.Wall(), number, 1)
			w.propose(l, Request{Kind: api.KindControl, ID: id, Op: entry.Op{Do: entry.End, Election: fmt.Sprint("job-", number), Through: l.core.replica.Index}})
		}
		last := fmt.Sprint("job-", number)
		w.until("they are ended", func() bool { return l.core.replica.Elections.Get(last).Ended })
		w.run(2 * election)
		for _, n := range w.nodes {
			require.Len(t, n.core.replica.Elections.Names(), each)
		}
		for _, n := range w.nodes {
			n.skew += 7*time.Hour + 2*time.Minute
		}
		w.until("they are forgotten", func() bool {
			for _, n := range w.nodes {
				if len(n.core.replica.Elections.Names()) > 0 || len(n.core.expiry.ended) > 0 {
					return false
				}
			}
			return true
		})
		w.until("a leader", func() bool { return w.leader() != nil })
	}
	index := w.leader().core.replica.Index
	w.run(10 * time.Second)
	require.Equal(t, index, w.leader().core.replica.Index, "nothing is written if there is nothing to forget")
	for _, n := range w.nodes {
		require.Equal(t, w.nodes[0].core.replica.Sum(), n.core.replica.Sum())
	}
}

// TestForgetWaitsForLeases: if wall clocks jump by more than the window, an election that was just
// ended is not forgotten while a peer may have a lease. If it is restarted after that, its token is
// greater, and a delayed request does not end it.
func TestForgetWaitsForLeases(t *testing.T) {
	w := newWorld(t, 3)
	w.until("a leader", func() bool { return w.leader() != nil })
	l := w.leader()
	n := w.other(l)
	l.core.AddCandidate("e", "first", "")
	w.until("it leads", func() bool { return len(w.holders("e")) == 1 })
	lines := &l.core.replica.Elections
	token := lines.Get("e").Candidates[0].Token
	end := entry.Op{Do: entry.End, Election: "e", Through: n.core.Replica().Index}
	late := n.core.encodeFrame(frameRequest, encodeRequest(7, Request{Kind: api.KindControl, ID: requestid.From(n.Wall(), 7, 7), Op: end}))
	w.propose(l, Request{Kind: api.KindControl, Op: end})
	w.until("it is ended", func() bool { return lines.Get("e").Ended })
	ended := w.now
	l.core.RemoveCandidate("e", "first")
	for _, n := range w.nodes {
		n.skew += 8 * time.Hour
	}
	w.until("it is forgotten", func() bool { return len(lines.Names()) == 0 })
	require.GreaterOrEqual(t, w.now-ended, election)

	l.core.AddCandidate("e", "second", "")
	w.until("it leads", func() bool { return len(w.holders("e")) == 1 })
	require.Greater(t, lines.Get("e").Candidates[0].Token, token)
	index := l.core.replica.Index
	require.NoError(t, l.core.Receive(n.peer.ID, late))
	w.until("the request is applied", func() bool { return l.core.replica.Index > index })
	require.Equal(t, []string{"second"}, w.holders("e"))
	reply := w.propose(l, Request{Kind: api.KindControl, Op: entry.Op{Do: entry.End, Election: "e", Through: 1}})
	w.until("a reply", func() bool { _, ok := l.replies[reply]; return ok })
	require.ErrorIs(t, l.replies[reply].Err, api.ErrStale)
}
