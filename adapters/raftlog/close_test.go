package raftlog_test

// The end of a node is the end of everything that it has begun. TestMain looks at that after
// all tests (goleak), and every bubble of testing/synctest does at its own end.

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// A leader that is closed hands the log over, so that nobody has to wait for a timeout.
func TestCloseHandsOver(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		for range 4 {
			leader := w.leader(t)
			began := time.Now()
			require.NoError(t, w.stop(leader))
			w.propose(t, w.others(leader)[0], "at once")
			require.Less(t, time.Since(began), 150*time.Millisecond, "less than an election timeout")
			w.start(leader)
			require.NoError(t, w.node(leader).Sync(within(t, time.Minute)))
		}
	})
}

// Close with everything under way, repeatedly and by several.
func TestCloseMeanwhile(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		leader := w.leader(t)
		n := w.node(leader)
		w.propose(t, leader, "a")
		c := stand(t, n, "e")
		c.awaitLeader(t)
		idle, err := raftlog.NewElection(n, "f")
		require.NoError(t, err)
		begun, goOn := make(chan struct{}), make(chan struct{})
		w.sm(leader).writing(func(io.Writer) error { close(begun); <-goOn; return nil })
		for _, p := range w.others(leader) {
			require.NoError(t, w.stop(p))
		}
		s := n.Subscribe(t.Context(), 1)
		results := make(chan error, 20)
		for range 5 {
			go func() { _, err := n.Propose(t.Context(), requestid.New(), []byte("x")); results <- err }()
			go func() { results <- n.Sync(t.Context()) }()
		}
		go func() { _, err := n.Compact(t.Context()); results <- err }()
		<-begun
		go func() { results <- raftlog.DeleteElection(t.Context(), n, "g") }()
		synctest.Wait()
		closed := make(chan error, 2)
		go func() { closed <- n.Close() }()
		go func() { closed <- n.Close() }()
		time.Sleep(time.Second)
		close(goOn) // the snapshot's writer is waited for
		require.NoError(t, <-closed)
		require.NoError(t, <-closed)
		for range 12 {
			err := <-results
			require.True(t, errors.Is(err, api.ErrClosed) || errors.Is(err, api.ErrUnknownOutcome), "%v", err)
		}
		<-c.ended
		require.ErrorIs(t, c.err, api.ErrClosed)
		require.ErrorIs(t, c.err, leaderelection.ErrConnClosed)
		for range s.Events() {
		}
		require.ErrorIs(t, idle.ElectLeader(), api.ErrClosed)
		require.ErrorIs(t, raftlog.DeleteElection(t.Context(), n, "e"), leaderelection.ErrConnClosed)
		_, err = raftlog.Candidates(t.Context(), n, "e")
		require.ErrorIs(t, err, leaderelection.ErrConnClosed)
		require.NotEmpty(t, n.Info().Fault)
		_ = n.PrunableFiles()
	})
}

// A peer that is opened and closed at once, before there is anybody else.
func TestCloseAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		for range 5 {
			for _, p := range w.peers {
				w.start(p)
				require.NoError(t, w.stop(p))
			}
		}
		w.startAll()
		w.propose(t, w.peers[0], "x")
	})
}
