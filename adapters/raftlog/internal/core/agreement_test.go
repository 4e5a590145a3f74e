package core

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// faulted lets time pass until a node panics with a Fault, stops the nodes that do, and returns
// them by their IDs.
func (w *world) faulted(d time.Duration) map[string]error {
	all := map[string]error{}
	for end := w.now + d; w.now < end; w.now += time.Millisecond {
		for _, n := range w.nodes {
			if n.down {
				continue
			}
			func() {
				defer func() {
					if r := recover(); r != nil {
						all[n.peer.ID] = r.(Fault).Err
						n.down = true
					}
				}()
				n.core.Advance()
			}()
		}
		w.step()
	}
	return all
}

// busy returns the leader and the two others, after some updates that all have applied.
func (w *world) busy(updates int) (leader, second, third *node) {
	w.until("a leader", func() bool { return w.leader() != nil })
	leader = w.leader()
	for i := range updates {
		w.propose(leader, Request{Kind: api.KindState, Data: fmt.Append(nil, i)})
		if i%100 == 0 {
			w.run(5 * time.Millisecond)
		}
	}
	w.run(election)
	var others []*node
	for _, n := range w.nodes {
		if n != leader {
			others = append(others, n)
		}
	}
	return leader, others[0], others[1]
}

// A peer whose history is not that of a majority stops, whether it leads or not, and the others
// go on.
func TestHistoryDiffers(t *testing.T) {
	for _, leads := range []bool{true, false} {
		w := newWorld(t, 3)
		n, other, _ := w.busy(10)
		if !leads {
			n, other = other, n
		}
		n.core.Replica().History ^= 1
		n.core.agreement.recordSum(n.core)
		faults := w.faulted(5 * election)
		require.Len(t, faults, 1)
		require.ErrorIs(t, faults[n.peer.ID], api.ErrIdentity)
		require.ErrorContains(t, faults[n.peer.ID], "remove "+n.peer.ID)
		w.until("a leader", func() bool { return w.leader() != nil })
		token := w.propose(w.leader(), Request{Kind: api.KindState, Data: []byte("x")})
		l := w.leader()
		w.run(election)
		require.NoError(t, l.replies[token].Err)
		require.Empty(t, w.faulted(5*election), "%s is well", other.peer.ID)
	}
}

// Without a majority of equal histories nobody knows which is right: both stop.
func TestHistoryDiffersWithoutMajority(t *testing.T) {
	w := newWorld(t, 3)
	l, second, third := w.busy(10)
	third.down = true
	w.propose(l, Request{Kind: api.KindState, Data: []byte("x")})
	w.run(election)
	second.core.Replica().History ^= 1
	second.core.agreement.recordSum(second.core)
	faults := w.faulted(5 * election)
	require.Contains(t, faults, l.peer.ID)
	require.Contains(t, faults, second.peer.ID)
}

// Histories are compared although a peer is far behind the others, or ahead of them.
func TestHistoryDiffersFarBehind(t *testing.T) {
	for _, updates := range []int{1, 300, 3000} {
		w := newWorld(t, 3)
		l, second, _ := w.busy(10)
		// Its log is not written, so that it does not apply what the others do.
		second.stalled = true
		second.core.Replica().History ^= 1
		second.core.agreement.recordSum(second.core)
		for i := range updates {
			w.propose(l, Request{Kind: api.KindState, Data: fmt.Append(nil, i)})
			if i%100 == 0 {
				w.run(5 * time.Millisecond)
			}
		}
		w.run(2 * election)
		require.Empty(t, w.faulted(election))
		second.stalled = false
		second.drain()
		faults := w.faulted(10 * election)
		require.Len(t, faults, 1, updates)
		require.Contains(t, faults, second.peer.ID)
	}
}

// A history that is the same is never found to differ.
func TestHistoriesAreTheSame(t *testing.T) {
	w := newWorld(t, 3)
	_, second, third := w.busy(1000)
	require.Empty(t, w.faulted(5*election))
	for _, k := range second.core.agreement.peers {
		require.Zero(t, k.differs)
		require.GreaterOrEqual(t, k.same, uint64(1000))
	}
	require.Len(t, third.core.agreement.peers, 2)
	require.ErrorIs(t, third.core.agreement.receiveSums(third.core, second.core.self, []byte("short")), errFrame)
}

// A checksum of an entry that a peer does not have yet is compared when it has, and one of an entry
// far behind is remembered.
func TestHistoryIsComparedLater(t *testing.T) {
	w := newWorld(t, 3)
	l, second, _ := w.busy(2000)
	_, known := second.core.agreement.sumAt(2 * stride)
	require.True(t, known)
	_, known = second.core.agreement.sumAt(2*stride + 1)
	require.False(t, known, "it is too far behind")

	w.loses = func(m wired) bool { return m.frame[0] == frameHistory }
	var body []byte
	for _, n := range []uint64{second.core.Replica().Index + 5, 12345, 0, 0} {
		body = binary.BigEndian.AppendUint64(body, n)
	}
	require.NoError(t, second.core.agreement.receiveSums(second.core, l.core.self, body))
	require.Empty(t, w.faulted(5*election), "it does not have the entry")
	for i := range 10 {
		w.propose(l, Request{Kind: api.KindState, Data: fmt.Append(nil, i)})
	}
	require.Contains(t, w.faulted(5*election), second.peer.ID)
}

// What other peers know about data directories is passed on, by announcements and their answers.
func TestInstancesAreHeard(t *testing.T) {
	w := newWorld(t, 3)
	n, _, _ := w.busy(1)
	body := announcement{election: election, addr: w.nodes[1].peer.Addr, instances: map[string]string{"z": "i"}}.encode()
	require.NoError(t, n.core.admission.receiveAnnouncement(n.core, w.nodes[1].peer.ID, body))
	require.Equal(t, []map[string]string{{"z": "i"}}, n.core.output.Instances)
}
