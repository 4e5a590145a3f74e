package raftlog_test

import (
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

// TestElection_PassesConformanceTests runs the tests that all implementations of elections share. Each
// candidate belongs to another peer of a cluster of five. No test case affects the last peer, which leads the
// log, because a new leader of the log interrupts all leaderships for a moment, and some cases expect no
// interruption. TestFailover_CompletesWithinDocumentedLimit tests the loss of the leader of the log.
func TestElection_PassesConformanceTests(t *testing.T) {
	electiontest.Run(t, func(t electiontest.TB) *electiontest.Group {
		h := newHarness(t, 5)
		h.startAll()
		for !isLeader(h.nodeOf(h.peers[4])) {
			for i, p := range h.peers[:4] {
				if isLeader(h.nodeOf(p)) {
					h.peers[i], h.peers[4] = h.peers[4], h.peers[i]
					break
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		return &electiontest.Group{
			New:      func(i int) (leaderelection.Candidate, error) { return raftlog.NewElection(h.nodeOf(h.peers[i]), "e") },
			Crash:    func(i int) { h.isolate(h.peers[i]) },
			Cut:      func(i int) func() { return h.isolate(h.peers[i]) },
			InOrder:  true,
			Patience: time.Minute,
		}
	}, electiontest.WithFakeTime())
}
