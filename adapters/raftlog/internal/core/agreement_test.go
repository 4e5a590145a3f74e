package core

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// advanceWithFaults advances the virtual time, stops each peer that panics with a Fault, and returns
// the faults by the IDs of the stopped peers.
func (h *harness) advanceWithFaults(d time.Duration) map[string]error {
	faults := map[string]error{}
	for end := h.now + d; h.now < end; h.now += time.Millisecond {
		for _, p := range h.peers {
			if p.down {
				continue
			}
			func() {
				defer func() {
					if r := recover(); r != nil {
						faults[p.self.ID] = r.(Fault).Err
						p.down = true
					}
				}()
				p.core.Advance()
			}()
		}
		h.deliverAndAdvance()
	}
	return faults
}

// proposeUpdates proposes n updates at a peer, one after another.
func (h *harness) proposeUpdates(p *peer, n int) {
	for i := range n {
		h.propose(p, update(fmt.Sprint(i)))
		if i%100 == 0 {
			h.advance(5 * time.Millisecond)
		}
	}
}

// leaderAfterUpdates returns the leader and the two other peers after all three have applied n updates.
func (h *harness) leaderAfterUpdates(n int) (leader, second, third *peer) {
	leader = h.waitForLeader()
	h.proposeUpdates(leader, n)
	h.advance(election)
	others := h.otherPeers(leader)
	return leader, others[0], others[1]
}

// corruptHistory changes the history checksum of a peer, as if the peer had applied other entries.
func (p *peer) corruptHistory() {
	p.core.Replica().History ^= 1
	p.core.agreement.recordSum(p.core)
}

// TestAgreement_StopsPeerWithOtherHistory checks that a peer whose history differs from the history of a
// majority stops, both as the leader and as a follower, and that the other peers continue.
func TestAgreement_StopsPeerWithOtherHistory(t *testing.T) {
	for _, leads := range []bool{true, false} {
		h := newHarness(t, 3)
		p, other, _ := h.leaderAfterUpdates(10)
		if !leads {
			p, other = other, p
		}
		p.corruptHistory()
		faults := h.advanceWithFaults(5 * election)
		require.Len(t, faults, 1)
		require.ErrorIs(t, faults[p.self.ID], api.ErrIdentity)
		require.ErrorContains(t, faults[p.self.ID], "remove "+p.self.ID)
		l := h.waitForLeader()
		token := h.propose(l, update("x"))
		h.advance(election)
		require.NoError(t, l.replies[token].Err)
		require.Empty(t, h.advanceWithFaults(5*election), "%s has the history of the majority", other.self.ID)
	}
}

// TestAgreement_TwoPeersStopIfHistoriesDiffer checks that both of the two running peers of three stop if
// their histories differ, because neither history has a majority.
func TestAgreement_TwoPeersStopIfHistoriesDiffer(t *testing.T) {
	h := newHarness(t, 3)
	l, second, third := h.leaderAfterUpdates(10)
	third.down = true
	h.propose(l, update("x"))
	h.advance(election)
	second.corruptHistory()
	faults := h.advanceWithFaults(5 * election)
	require.Contains(t, faults, l.self.ID)
	require.Contains(t, faults, second.self.ID)
}

// TestAgreement_ComparesPeerThatIsFarBehind checks that peers also compare histories with a peer that has
// applied far fewer entries than they have.
func TestAgreement_ComparesPeerThatIsFarBehind(t *testing.T) {
	for _, updates := range []int{1, 300, 3000} {
		h := newHarness(t, 3)
		l, second, _ := h.leaderAfterUpdates(10)
		second.diskStalled = true // a stalled disk keeps the second peer from applying the updates
		second.corruptHistory()
		h.proposeUpdates(l, updates)
		h.advance(2 * election)
		require.Empty(t, h.advanceWithFaults(election))
		second.diskStalled = false
		second.handleOutput()
		faults := h.advanceWithFaults(10 * election)
		require.Len(t, faults, 1, updates)
		require.Contains(t, faults, second.self.ID)
	}
}

// TestAgreement_FindsNoDifferenceInEqualHistories checks that peers with equal histories report no
// difference and continue.
func TestAgreement_FindsNoDifferenceInEqualHistories(t *testing.T) {
	h := newHarness(t, 3)
	_, second, third := h.leaderAfterUpdates(1000)
	require.Empty(t, h.advanceWithFaults(5*election))
	for _, k := range second.core.agreement.peers {
		require.Zero(t, k.differs)
		require.GreaterOrEqual(t, k.same, uint64(1000))
	}
	require.Len(t, third.core.agreement.peers, 2)
	require.ErrorIs(t, third.core.agreement.receiveSums(third.core, second.core.self, []byte("short")), errFrame)
}

// TestAgreement_ComparesChecksumWhenEntryArrives checks that a peer keeps a received checksum until it has applied
// the entry of that checksum, and compares the two then. It also checks that the peer still stores its checksum at
// an earlier entry.
func TestAgreement_ComparesChecksumWhenEntryArrives(t *testing.T) {
	h := newHarness(t, 3)
	l, second, _ := h.leaderAfterUpdates(2000)
	_, known := second.core.agreement.sumAt(2 * stride)
	require.True(t, known)
	_, known = second.core.agreement.sumAt(2*stride + 1)
	require.False(t, known, "the entry is too old")

	h.drops = func(m transmission) bool { return m.frame[0] == frameHistory }
	var body []byte
	for _, n := range []uint64{second.core.Replica().Index + 5, 12345, 0, 0} {
		body = binary.BigEndian.AppendUint64(body, n)
	}
	require.NoError(t, second.core.agreement.receiveSums(second.core, l.core.self, body))
	require.Empty(t, h.advanceWithFaults(5*election), "the peer does not have the entry")
	for i := range 10 {
		h.propose(l, update(fmt.Sprint(i)))
	}
	require.Contains(t, h.advanceWithFaults(5*election), second.self.ID)
}
