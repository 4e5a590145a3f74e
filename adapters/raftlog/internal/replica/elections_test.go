package replica

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
)

var now = time.Unix(1_700_000_000, 0)

// requireIndexed compares what Lines answer from their index with all lines.
func requireIndexed(t *testing.T, ls *Lines) {
	t.Helper()
	peers, leads := map[uint64]map[string]bool{}, map[uint64]bool{}
	for _, name := range ls.Names() {
		for i, c := range ls.Line(name).Candidates {
			if peers[c.Peer] == nil {
				peers[c.Peer] = map[string]bool{}
			}
			peers[c.Peer][name] = true
			leads[c.Peer] = leads[c.Peer] || i == 0
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(peers)), ls.Peers())
	for peer := range uint64(5) {
		require.Equal(t, slices.Sorted(maps.Keys(peers[peer])), ls.Of(peer))
		require.Equal(t, leads[peer], ls.Leads(peer))
	}
}

// TestLinesAreIndexed: after any ops, and after a snapshot.
func TestLinesAreIndexed(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	ls := newLines()
	for index := uint64(2); index < 3000; index++ {
		op := entry.Op{Election: fmt.Sprint("e", r.IntN(4)), Peer: uint64(r.IntN(4)), Through: index}
		// Candidates of the same peer in one election, and of one name at several peers.
		op.Candidate = fmt.Sprint(op.Peer, "/", r.IntN(3))
		op.Do = []string{entry.Join, entry.Join, entry.Join, entry.Leave, entry.Leave, entry.Expire, entry.End, entry.Restart}[r.IntN(8)]
		if op.Do == entry.Expire {
			ls.expire(op, index)
		} else {
			_ = ls.apply(op, index, now)
		}
		requireIndexed(t, &ls)
	}
	again, err := load(save(ls.byName), ls.forgotten, 3000, now)
	require.NoError(t, err)
	requireIndexed(t, &again)
	ls.past, again.past = nil, nil // a snapshot lacks entries that have no effect
	require.Equal(t, ls, again)
}

// TestExpireTakesOnlyThosePeersCandidates: those that have joined by then, in every election.
func TestExpireTakesOnlyThosePeersCandidates(t *testing.T) {
	ls := newLines()
	index := uint64(1)
	join := func(election, candidate string, peer uint64) {
		index++
		require.NoError(t, ls.apply(entry.Op{Do: entry.Join, Election: election, Candidate: candidate, Peer: peer}, index, now))
	}
	join("b", "1/x", 1)
	join("a", "1/y", 1)
	join("a", "2/z", 2)
	join("c", "2/u", 2)
	through := index
	join("b", "1/late", 1)
	require.Equal(t, []string{"a", "b"}, ls.expire(entry.Op{Do: entry.Expire, Peer: 1, Through: through}, index+1))
	require.Equal(t, 0, ls.Line("a").Place("2/z"))
	require.Equal(t, index+1, ls.Line("a").Candidates[0].Token)
	require.Equal(t, 0, ls.Line("b").Place("1/late"))
	require.Len(t, ls.Line("c").Candidates, 1)
}
