package raftlog_test

import (
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

// Every program is a peer of a cluster of five.
func TestConformance(t *testing.T) {
	electiontest.Run(t, func(t electiontest.TB) *electiontest.Group {
		w := newWorld(t, 5)
		nodes := w.startAll()
		return &electiontest.Group{
			New:      func(i int) (leaderelection.Candidate, error) { return raftlog.NewElection(nodes[i], "e") },
			Crash:    func(i int) { w.isolate(w.peers[i]) },
			Cut:      func(i int) func() { return w.isolate(w.peers[i]) },
			Patience: time.Minute,
		}
	}, electiontest.FakeTime())
}
