package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHandOver_AtAnyTime fails if a hand-over takes an election timeout or longer, whenever it is
// requested.
func TestHandOver_AtAnyTime(t *testing.T) {
	h := newHarness(t, 3)
	for range 25 {
		h.waitForLeader()
		h.advance(time.Duration(h.rand.IntN(300)) * time.Millisecond)
		l := h.leader()
		l.core.HandOver()
		l.handleOutput()
		took := h.waitFor("another leader", func() bool { return h.leader() != nil && h.leader() != l })
		require.Less(t, took, election)
	}
}

// TestHandOver_Duration fails if a hand-over on an idle cluster waits for a timeout.
func TestHandOver_Duration(t *testing.T) {
	h := newHarness(t, 3)
	l := h.waitForLeader()
	require.NoError(t, h.request(l, update("x")).Err)
	h.advance(2 * election)
	l.core.HandOver()
	l.handleOutput()
	took := h.waitFor("another leader", func() bool { return h.leader() != nil && h.leader() != l })
	require.Less(t, took, 100*time.Millisecond)
}
