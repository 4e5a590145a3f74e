package raftlog_test

import (
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

// Every program is a peer of a cluster of five. The one that leads the log is the last, which
// no case needs: without it nobody can prove for a moment that it leads an election, also
// where the case says that nothing happens to the leader. TestFailover is about that.
func TestConformance(t *testing.T) {
	electiontest.Run(t, func(t electiontest.TB) *electiontest.Group {
		w := newWorld(t, 5)
		w.startAll()
		for !leads(w.node(w.peers[4])) {
			for i, p := range w.peers[:4] {
				if leads(w.node(p)) {
					w.peers[i], w.peers[4] = w.peers[4], w.peers[i]
					break
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		return &electiontest.Group{
			New:      func(i int) (leaderelection.Candidate, error) { return raftlog.NewElection(w.node(w.peers[i]), "e") },
			Crash:    func(i int) { w.isolate(w.peers[i]) },
			Cut:      func(i int) func() { return w.isolate(w.peers[i]) },
			Patience: time.Minute,
		}
	}, electiontest.FakeTime())
}
