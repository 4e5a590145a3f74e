package raftlog

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/candidacy"
)

// TestLeadership_RenewedLease fails if a lease that has expired, and was renewed for another queue,
// confirms an earlier leadership. The candidate has lost its position in between, and its goroutine
// has not noticed yet.
func TestLeadership_RenewedLease(t *testing.T) {
	n := &Node{startedAt: time.Now()}
	e := &Election{node: n, name: "e", candidacy: candidacy.New(t.Context(), nil), changed: make(chan struct{}, 1)}
	c := &campaign{election: e, id: "a"}
	e.setQueue(replica.Election{Candidates: []replica.Candidate{{ID: "a", Token: 5}, {ID: "b"}}})
	n.lease.Store(int64(time.Hour))
	require.False(t, c.evaluateQueue())
	leadership := e.candidacy.Leadership()
	require.NotNil(t, leadership)
	require.NoError(t, leadership.Err())

	e.setQueue(replica.Election{Candidates: []replica.Candidate{{ID: "b", Token: 7}, {ID: "a"}}})
	n.lease.Store(int64(2 * time.Hour))
	require.ErrorIs(t, leadership.Err(), leaderelection.ErrLeaseExpired)
	_ = e.candidacy.Finish(leaderelection.ErrResigned)
}
