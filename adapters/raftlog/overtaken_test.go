package raftlog_test

// Snapshots that a newer one overtakes, from the leader.

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
)

// stalling is a disk that stands when a received snapshot has got its place and the log is to
// begin anew behind it.
type stalling struct {
	disk.FS
	placed        bool // the log's writer sets and reads it
	reached, goOn chan struct{}
}

func (s *stalling) Rename(from, to string) error {
	if s.placed && strings.HasPrefix(to, "log/") {
		s.placed = false
		close(s.reached)
		<-s.goOn
	}
	s.placed = s.placed || strings.HasPrefix(from, "snap.received")
	return s.FS.Rename(from, to)
}

// behind brings about a peer that is cut off, and that needs a snapshot from the leader when
// it is healed. A Compact of its own is under way, whose writing stands until goOn is closed.
func (w *world) behind(t *testing.T, goOn chan struct{}, opts ...func(*raftlog.Config)) (p api.Peer, heal func(), done chan error) {
	leader := w.leader(t)
	p = w.others(leader)[0]
	require.NoError(t, w.stop(p))
	w.start(p, append([]func(*raftlog.Config){slowly, minute}, opts...)...)
	w.propose(t, leader, "early")
	require.NoError(t, w.node(p).Sync(within(t, time.Minute)))
	heal = w.isolate(p)
	w.propose(t, leader, few("a", 20)...)
	time.Sleep(4 * time.Minute)
	for _, q := range w.others(p) {
		_, err := w.node(q).Compact(within(t, time.Minute))
		require.NoError(t, err)
	}
	begun := make(chan struct{})
	w.sm(p).writing(func(io.Writer) error { close(begun); <-goOn; return nil })
	done = make(chan error, 1)
	go func() {
		index, err := w.node(p).Compact(t.Context())
		if err == nil && (index != w.node(p).Info().SnapshotIndex || index < 20) {
			t.Errorf("entry %d; the peer has a snapshot of %d", index, w.node(p).Info().SnapshotIndex)
		}
		done <- err
	}()
	<-begun
	return p, heal, done
}

// Whoever waits for a snapshot has it when the leader has sent a newer one.
func TestCompactIsOvertaken(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		goOn := make(chan struct{})
		p, heal, done := w.behind(t, goOn)
		heal()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			t.Error("it still waits, for what is of no use any more")
		}
		close(goOn)
		w.propose(t, p, "later")
		w.has(t, w.peers, append(append([]string{"early"}, few("a", 20)...), "later")...)
	}, slowly, minute)
}

// The newer one is in place, and the peer does not know that yet.
func TestCompactIsOvertakenAtTheEnd(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		goOn := make(chan struct{})
		s := &stalling{reached: make(chan struct{}), goOn: make(chan struct{})}
		p, heal, done := w.behind(t, goOn, func(c *raftlog.Config) {
			s.FS = w.disks[c.ID]
			*c = c.OnDisk(s)
		})
		heal()
		<-s.reached
		close(goOn)
		synctest.Wait() // it has seen that there is a newer one
		select {
		case err := <-done:
			t.Fatalf("it is not complete: %v", err)
		default:
		}
		close(s.goOn)
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			t.Fatal("it waits for ever")
		}
		w.propose(t, p, "later")
		w.has(t, w.peers, append(append([]string{"early"}, few("a", 20)...), "later")...)
	}, slowly, minute)
}
