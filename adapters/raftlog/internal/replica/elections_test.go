package replica

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// requireIndexed requires that Peers, OfPeer and HasHead return what the queues of all elections
// contain.
func requireIndexed(t *testing.T, es *Elections) {
	t.Helper()
	peers, heads := map[uint64]map[string]bool{}, map[uint64]bool{}
	for _, name := range es.Names() {
		for i, c := range es.Get(name).Candidates {
			if peers[c.Peer] == nil {
				peers[c.Peer] = map[string]bool{}
			}
			peers[c.Peer][name] = true
			heads[c.Peer] = heads[c.Peer] || i == 0
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(peers)), es.Peers())
	for peer := range uint64(5) {
		require.Equal(t, slices.Sorted(maps.Keys(peers[peer])), es.OfPeer(peer))
		require.Equal(t, heads[peer], es.HasHead(peer))
	}
}

// TestElections_IndexByPeerMatchesQueues checks that the index of elections by peer agrees with the queues after
// random operations, and after decoding the elections.
func TestElections_IndexByPeerMatchesQueues(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	es := newElections()
	for index := uint64(2); index < 3000; index++ {
		op := Op{Election: fmt.Sprint("e", r.IntN(4)), Peer: uint64(r.IntN(4)), Through: index}
		// Some operations concern several candidates of one peer in the same election, and some concern
		// candidates with the same ID at several peers.
		op.Candidate = fmt.Sprint(op.Peer, "/", r.IntN(3))
		op.Do = []Operation{Join, Join, Join, Leave, Leave, Expire, End, Restart}[r.IntN(8)]
		if op.Do == Expire {
			es.expirePeer(op, index)
		} else {
			_ = es.applyOp(op, index, now)
		}
		requireIndexed(t, &es)
	}
	d := wire.Decoder{B: es.append(nil)}
	again, err := decodeElections(&d, 3000)
	require.NoError(t, err)
	require.NoError(t, d.End())
	requireIndexed(t, &again)
	require.Equal(t, es.append(nil), again.append(nil))
	require.Equal(t, es.peers, again.peers)
}

// TestExpire_RemovesOnlyEarlierCandidatesOfPeer checks that an Expire operation removes the earlier candidates of
// its peer from every election, and neither candidates of other peers nor candidates that have joined later.
func TestExpire_RemovesOnlyEarlierCandidatesOfPeer(t *testing.T) {
	es := newElections()
	index := uint64(1)
	join := func(election, candidate string, peer uint64) {
		index++
		require.NoError(t, es.applyOp(Op{Do: Join, Election: election, Candidate: candidate, Peer: peer}, index, now))
	}
	join("b", "1/x", 1)
	join("a", "1/y", 1)
	join("a", "2/z", 2)
	join("c", "2/u", 2)
	through := index
	join("b", "1/late", 1)
	require.Equal(t, []string{"a", "b"}, es.expirePeer(Op{Do: Expire, Peer: 1, Through: through}, index+1))
	require.Equal(t, 0, es.Get("a").Position("2/z"))
	require.Equal(t, index+1, es.Get("a").Candidates[0].Token)
	require.Equal(t, 0, es.Get("b").Position("1/late"))
	require.Len(t, es.Get("c").Candidates, 1)
}

func endElection(es *Elections, election string, through, index uint64) error {
	return es.applyOp(Op{Do: End, Election: election, Through: through}, index, now)
}

// TestForget_RemovesOnlyElectionsEndedBefore checks that a Forget operation removes the elections that were
// ended up to its index, and elections that were restarted and have no candidates. It keeps elections with
// candidates and elections that were ended later.
func TestForget_RemovesOnlyElectionsEndedBefore(t *testing.T) {
	es := newElections()
	join := func(election string, index uint64) error {
		return es.applyOp(Op{Do: Join, Election: election, Candidate: fmt.Sprint(index), Peer: 1}, index, now)
	}
	restart := func(election string, index uint64) {
		require.NoError(t, es.applyOp(Op{Do: Restart, Election: election, Through: index - 1}, index, now))
	}
	require.NoError(t, endElection(&es, "ended", 1, 2))
	require.NoError(t, endElection(&es, "restarted", 2, 3))
	restart("restarted", 4)
	require.NoError(t, endElection(&es, "with a candidate", 4, 5))
	restart("with a candidate", 6)
	require.NoError(t, join("with a candidate", 7))
	require.NoError(t, endElection(&es, "ended again", 7, 8))
	restart("ended again", 9)
	require.NoError(t, join("never ended", 10))
	through := uint64(10)
	require.NoError(t, endElection(&es, "ended again", 10, 11))
	require.NoError(t, endElection(&es, "ended later", 11, 12))

	_, err := es.forgetThrough(Op{Through: 13}, 13)
	require.ErrorIs(t, err, api.ErrInvalid)
	removed, err := es.forgetThrough(Op{Through: through}, 13)
	require.NoError(t, err)
	require.Equal(t, []string{"ended"}, removed)
	require.Equal(t, []string{"ended again", "ended later", "never ended", "with a candidate"}, es.Names())
	require.Len(t, es.transitions, 2)
	require.ErrorIs(t, join("ended later", 14), errEnded)

	require.NoError(t, es.applyOp(Op{Do: Leave, Election: "with a candidate", Candidate: "7"}, 15, now))
	require.NotContains(t, es.Names(), "with a candidate", "the log has forgotten that the election was ended before")
	_, err = es.forgetThrough(Op{Through: 5}, 16)
	require.NoError(t, err)
	require.Equal(t, through, es.forgotten)

	// If an election is restarted after it was forgotten, its token is greater than before, and a
	// delayed request does not end the election.
	require.NoError(t, join("ended", 17))
	require.Equal(t, uint64(17), es.Get("ended").Candidates[0].Token)
	require.ErrorIs(t, endElection(&es, "ended", 1, 18), api.ErrStale)
	require.ErrorIs(t, endElection(&es, "with a candidate", 4, 19), api.ErrStale)
	require.False(t, es.Get("ended").Ended)
	require.NoError(t, endElection(&es, "ended", 17, 20))
	require.True(t, es.Get("ended").Ended)
}

// TestForgettable_BeginsWithOldestElections checks that elections are forgotten in the order in which they were
// ended, only when their ends are old or there are too many, and not while a candidate may still lead them.
func TestForgettable_BeginsWithOldestElections(t *testing.T) {
	es := newElections()
	clock := now
	over := func(string) bool { return true }
	for i := range uint64(3 * maxForget) {
		clock = now.Add(time.Duration(i) * time.Second)
		require.NoError(t, es.applyOp(Op{Do: End, Election: fmt.Sprint(i)}, i+2, clock))
	}
	require.Zero(t, es.Forgettable(now, over))
	require.Equal(t, uint64(11), es.Forgettable(now.Add(10*time.Second), over))
	require.Equal(t, uint64(6), es.Forgettable(now.Add(10*time.Second), func(name string) bool { return name != "5" }))
	require.Equal(t, uint64(maxForget+1), es.Forgettable(clock, over))
	date, found, tooMany := es.Oldest()
	require.True(t, found && !tooMany)
	require.Equal(t, now, date)

	// The entry that ended an election is obsolete after the election was restarted.
	require.NoError(t, es.applyOp(Op{Do: Restart, Election: "5", Through: 1 << 40}, 1<<40, clock))
	require.Equal(t, uint64(11), es.Forgettable(now.Add(10*time.Second), func(name string) bool { return name != "5" }))

	for i := uint64(3 * maxForget); len(es.transitions) < maxTransitions+10; i++ {
		require.NoError(t, es.applyOp(Op{Do: End, Election: fmt.Sprint(i)}, 1<<41+i, clock))
	}
	require.Equal(t, uint64(11), es.Forgettable(now, over))
	_, _, tooMany = es.Oldest()
	require.True(t, tooMany)
	require.Zero(t, es.Forgettable(now, func(string) bool { return false }))
}

// TestElections_RecordHowFormerHeadLeft checks that the head of a queue learns how the previous head has
// left, and that a head which has not led is not recorded as resigned.
func TestElections_RecordHowFormerHeadLeft(t *testing.T) {
	es, index := newElections(), uint64(1)
	apply := func(op Op) uint64 {
		index++
		if op.Do == Expire {
			es.expirePeer(op, index)
			return index
		}
		op.Election = "e"
		require.NoError(t, es.applyOp(op, index, now))
		return index
	}
	former := func() Departure { return es.Get("e").Candidates[0].Former }
	token := func() uint64 { return es.Get("e").Candidates[0].Token }
	for i := range uint64(6) {
		apply(Op{Do: Join, Candidate: fmt.Sprint(i), Peer: i})
	}
	require.Equal(t, Unknown, former(), "there was no head before")
	apply(Op{Do: Leave, Candidate: "1", Through: token()})
	require.Equal(t, Unknown, former(), "a follower has left")
	apply(Op{Do: Leave, Candidate: "0", Through: token()})
	require.Equal(t, Resigned, former())
	apply(Op{Do: Join, Candidate: "6", Peer: 6})
	require.Equal(t, Resigned, former(), "the same candidate is still the head")
	apply(Op{Do: Leave, Candidate: "2"})
	require.Equal(t, Unknown, former(), "the former head has not led")
	apply(Op{Do: Leave, Candidate: "3", Through: token() - 1})
	require.Equal(t, Unknown, former(), "the former head has led with another token")
	apply(Op{Do: Expire, Peer: 4, Through: index})
	require.Equal(t, Expired, former())

	d := wire.Decoder{B: es.append(nil)}
	again, err := decodeElections(&d, index)
	require.NoError(t, err)
	require.Equal(t, Unknown, again.Get("e").Candidates[0].Former)
}
