package raftlog

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// A candidate lost its place when the lease had ended, and the lease is back, given for the new
// line. The candidate's goroutine has seen nothing of that yet: the old leadership is over all
// the same, since another one may have begun.
func TestALeaseDoesNotProveWhatWasBefore(t *testing.T) {
	n := &Node{startedAt: time.Now()}
	e := &Election{node: n, name: "e", candidacy: leaderelection.NewCandidacy(t.Context(), nil), changed: make(chan struct{}, 1)}
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
