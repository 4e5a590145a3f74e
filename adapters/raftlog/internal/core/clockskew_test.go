package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestClockSkew_LeaderWithWrongClockHandsOver checks that a leader whose wall clock is years ahead hands over, and
// writes its wrong time neither into entries before the hand-over nor into the entry of the hand-over. The clock of
// the log never goes back, so a wrong time would make all later request IDs stale.
func TestClockSkew_LeaderWithWrongClockHandsOver(t *testing.T) {
	h, l := startCluster(t)
	require.NoError(t, h.request(l, update("before")).Err)
	l.skew = 10 * 365 * 24 * time.Hour
	l = h.waitForOtherLeader(l)
	require.NoError(t, h.request(l, update("after")).Err)
	require.Less(t, l.core.replica.Clock.Sub(l.Wall()).Abs(), maxSkew)
}

// TestClockSkew_LeaderHandsOverToPeerWithRightClock checks that a leader with a wrong wall clock does not hand over to
// a peer whose wall clock is wrong as well. Such a successor would hand over again.
func TestClockSkew_LeaderHandsOverToPeerWithRightClock(t *testing.T) {
	h := newHarness(t, 5)
	h.waitForLeader()
	h.advance(3 * election)
	l := h.leader()
	// Without regard to clocks, the leader would hand over to this peer, because it is the first peer that
	// replies, and no other voter has a longer log.
	next := h.otherPeers(l)[0]
	l.skew, next.skew = time.Hour, time.Hour
	handOvers, last := 0, l
	for range 100 {
		h.advance(election / 10)
		if l := h.leader(); l != nil && l != last {
			handOvers, last = handOvers+1, l
		}
	}
	require.Equal(t, 1, handOvers)
	require.Zero(t, last.skew)
}
