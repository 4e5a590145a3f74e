package raftlog

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
	"github.com/go-leaderelection/leaderelection/candidacy"
)

// A candidate lost its place when the lease had ended, and the lease is back, given for the new
// line. The candidate's goroutine has seen nothing of that yet: the old leadership is over all
// the same, since another one may have begun.
func TestALeaseDoesNotProveWhatWasBefore(t *testing.T) {
	n := &Node{began: time.Now()}
	e := &Election{node: n, name: "e", candidacy: candidacy.New(t.Context(), nil), poke: make(chan struct{}, 1)}
	c := &contender{Election: e, id: "a"}
	e.see(replica.Line{Candidates: []replica.Candidate{{ID: "a", Token: 5}, {ID: "b"}}})
	n.lease.Store(int64(time.Hour))
	require.False(t, c.look())
	leadership := c.candidacy.Leadership()
	require.NotNil(t, leadership)
	require.NoError(t, leadership.Err())

	e.see(replica.Line{Candidates: []replica.Candidate{{ID: "b", Token: 7}, {ID: "a"}}})
	n.lease.Store(int64(2 * time.Hour))
	require.ErrorIs(t, leadership.Err(), leaderelection.ErrLeaseExpired)
	_ = e.candidacy.Finish(leaderelection.ErrResigned)
}
