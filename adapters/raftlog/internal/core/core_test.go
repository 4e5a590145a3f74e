package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSnapshot_IsRequestedForEachNewLearner checks that a leader that has truncated its log requests a snapshot
// that contains a new learner, even while another new learner waits for a snapshot.
func TestSnapshot_IsRequestedForEachNewLearner(t *testing.T) {
	h, l := startCluster(t)
	for i := range 3 {
		l.core.AddCandidate(fmt.Sprint("e", i), fmt.Sprint("c", i), "")
		l.handleOutput()
	}
	h.advance(time.Second)
	s := l.core.Status()
	l.core.ReportSnapshotCreated(Snapshot{Index: s.Applied, Term: s.Term, Members: 1})
	l.handleOutput()
	require.Equal(t, s.Applied+1, l.core.Status().First)
	h.addPeer(3)
	h.waitFor("a snapshot is requested", func() bool { return l.snapshotRequests > 0 })
	h.addPeer(4)
	h.waitFor("another snapshot is requested", func() bool { return l.snapshotRequests > 1 })
}
