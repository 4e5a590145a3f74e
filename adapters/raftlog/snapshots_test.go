package raftlog_test

// Snapshots: taken, kept, restored, sent; and the log that begins behind them.

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// files are those in a folder of a peer whose names begin so.
func (w *world) files(t testing.TB, p api.Peer, dir, prefix string) []string {
	t.Helper()
	names, err := w.disks[p.ID].List(dir)
	require.NoError(t, err)
	var all []string
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			all = append(all, name)
		}
	}
	return all
}

// The log begins behind the snapshot, but not behind an entry whose ID is fresh.
func TestCompact(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.peers[0]
		n := w.node(p)
		pad := strings.Repeat("x", 8<<10)
		var want []string
		for _, u := range few("a", 40) {
			want = append(want, u+pad)
		}
		w.propose(t, p, want...)
		fresh := n.Info()
		index, err := n.Compact(within(t, time.Minute))
		require.NoError(t, err)
		require.Equal(t, fresh.LastApplied, index)
		i := n.Info()
		require.Equal(t, index, i.SnapshotIndex)
		require.Positive(t, i.SnapshotSize)
		require.Equal(t, fresh.PruneIndex+1, i.FirstIndex, "fresh IDs keep their entries")
		require.Empty(t, n.PrunableFiles())
		require.Len(t, w.files(t, p, ".", "snap-"), 1, "the snapshot before, of entry 1")
		segments := w.files(t, p, "log", "")
		require.Greater(t, len(segments), 2)

		time.Sleep(4 * time.Minute) // nobody writes; IDs are forgotten all the same
		require.Zero(t, n.Info().RequestIDs)
		index, err = n.Compact(within(t, time.Minute))
		require.NoError(t, err)
		require.Equal(t, index+1, n.Info().FirstIndex)
		require.NotEmpty(t, n.PrunableFiles())
		require.Subset(t, w.files(t, p, "log", ""), segments, "no file is deleted")
		backups := w.files(t, p, ".", "snap-")
		require.Len(t, backups, 2)
		for _, b := range backups {
			require.True(t, strings.HasSuffix(b, ".bak"), b)
		}
		for _, f := range n.PrunableFiles() {
			require.NoError(t, w.disks[p.ID].Remove(f))
		}
		w.propose(t, p, "behind")
		want = append(want, "behind")
		require.NoError(t, w.stop(p))
		w.start(p, slowly, minute)
		require.Equal(t, index+1, w.node(p).Info().FirstIndex)
		w.has(t, w.peers, want...)
		w.crash(p)
		w.start(p, slowly, minute)
		w.has(t, w.peers, want...)
	}, slowly, minute)
}

func minute(c *raftlog.Config) { c.Window = time.Minute }

// A snapshot that cannot be written is an error, and the one before stays.
func TestCompactFails(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.peers[0]
		w.propose(t, p, few("a", 10)...)
		index, err := w.node(p).Compact(within(t, time.Minute))
		require.NoError(t, err)
		w.propose(t, p, "b")
		broken := errors.New("cannot be written")
		w.sm(p).writing(func(io.Writer) error { return broken })
		_, err = w.node(p).Compact(t.Context())
		require.ErrorIs(t, err, broken)
		require.Equal(t, index, w.node(p).Info().SnapshotIndex)
		require.Empty(t, w.files(t, p, ".", "snap.tmp"))
		w.sm(p).writing(nil)
		_, err = w.node(p).Compact(within(t, time.Minute))
		require.NoError(t, err)
		require.NoError(t, w.node(p).Err())
	})
}

// While a snapshot is written everything goes on, and whoever reads the one before does not
// disturb it.
func TestCompactMeanwhile(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		p := w.leader(t)
		w.propose(t, p, few("a", 10)...)
		begun, goOn := make(chan struct{}), make(chan struct{})
		w.sm(p).writing(func(io.Writer) error { close(begun); <-goOn; return nil })
		done := make(chan error, 1)
		go func() {
			_, err := w.node(p).Compact(t.Context())
			done <- err
		}()
		<-begun
		w.propose(t, p, "b")
		s := w.node(p).Subscribe(t.Context(), 1) // it begins with the snapshot of entry 1
		require.NotNil(t, next(t, s).Snapshot)
		s.Close()
		close(goOn)
		require.NoError(t, <-done)
		w.propose(t, p, "c")
		w.crash(p)
		w.start(p)
		w.has(t, w.peers, append(few("a", 10), "b", "c")...)
	})
}

// A state machine that keeps its state is not given twice what it has.
func TestRestartWithAStateMachineThatKeepsItsState(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.peers[0]
		require.NoError(t, w.stop(p))
		sm := &durable{}
		keeps := func(c *raftlog.Config) { c.StateMachine = sm }
		w.start(p, keeps)
		w.propose(t, p, few("a", 10)...)
		_, err := w.node(p).Compact(within(t, time.Minute))
		require.NoError(t, err)
		w.propose(t, p, few("b", 10)...)
		for range 2 {
			require.NoError(t, w.stop(p))
			w.start(p, keeps)
			require.NoError(t, w.node(p).Sync(within(t, time.Minute)))
			require.Equal(t, append(few("a", 10), few("b", 10)...), sm.all())
			require.Zero(t, sm.restored)
			s := w.node(p).Subscribe(t.Context(), 1)
			r := &reader{next: 1}
			r.until(t, s, "b9")
			s.Close()
		}
		w.propose(t, p, "c")
		require.Equal(t, append(append(few("a", 10), few("b", 10)...), "c"), sm.all())
	})
}

// A state machine can have entries that its peer's log does not have any more: others have
// stored them, and this one's log was not on the disk when the power failed.
func TestRestartWithAStateMachineAheadOfTheLog(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		p := w.others(w.leader(t))[0]
		sm := &durable{}
		require.NoError(t, w.stop(p))
		w.start(p, func(c *raftlog.Config) { c.StateMachine = sm })
		w.propose(t, w.peers[0], few("a", 10)...)
		require.NoError(t, w.node(p).Sync(within(t, time.Minute)))
		require.NoError(t, w.stop(p))
		index := uint64(0)
		for _, u := range few("b", 5) {
			i, err := w.node(w.others(p)[0]).Propose(within(t, time.Minute), requestid.New(), []byte(u))
			require.NoError(t, err)
			require.NoError(t, sm.Apply([]api.Entry{{Index: i, Data: []byte(u)}}, i))
			index = i
		}
		heal := w.isolate(p)
		w.start(p, func(c *raftlog.Config) { c.StateMachine = sm })
		s := w.node(p).Subscribe(t.Context(), 1)
		r := &reader{next: 1}
		r.until(t, s, "a9")
		pulse(t, s, func(p *api.Progress) bool { return !p.Fresh })
		_, err := w.node(p).Compact(within(t, time.Minute))
		require.ErrorIs(t, err, api.ErrBusy, "its state is not that of the log's end")
		heal()
		r.until(t, s, "b4")
		s.Close()
		_, err = w.node(p).Propose(within(t, time.Minute), requestid.New(), []byte("c"))
		require.NoError(t, err)
		require.Greater(t, sm.applied, index)
		require.Equal(t, append(append(few("a", 10), few("b", 5)...), "c"), sm.all())
	})
}

// durable is a register whose state outlives its peer.
type durable struct {
	register
	restored int
}

func (d *durable) LastApplied() (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.applied, nil
}

func (d *durable) Restore(index uint64, r io.Reader) error {
	d.restored++
	return d.register.Restore(index, r)
}

// A peer that was away while the log's beginning moved gets a snapshot, and goes on.
func TestSnapshotForOneThatWasAway(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		leader := w.leader(t)
		away := w.others(leader)[0]
		s := w.node(away).Subscribe(t.Context(), 1)
		defer s.Close()
		w.propose(t, away, "early")
		heal := w.isolate(away)
		w.propose(t, leader, few("a", 20)...)
		time.Sleep(4 * time.Minute)
		for _, p := range w.others(away) {
			_, err := w.node(p).Compact(within(t, time.Minute))
			require.NoError(t, err)
			require.Greater(t, w.node(p).Info().FirstIndex, w.node(away).Info().LastIndex+1)
		}
		w.propose(t, leader, few("b", 5)...)
		heal()
		want := append(append([]string{"early"}, few("a", 20)...), few("b", 5)...)
		w.has(t, w.peers, want...)
		i := w.node(away).Info()
		require.Greater(t, i.SnapshotIndex, uint64(20))
		require.Equal(t, i.SnapshotIndex+1, i.FirstIndex)
		require.Empty(t, w.files(t, away, ".", "snap.received"))
		r := &reader{next: 1}
		r.until(t, s, "b4")
		require.Equal(t, want, r.updates, "its subscriber has gone over the snapshot")
		w.propose(t, away, "later")
		w.crash(away)
		w.start(away, slowly, minute)
		w.has(t, w.peers, append(want, "later")...)
	}, slowly, minute)
}

// The same, while the receiver's own snapshots are taken, and with power failures.
func TestSnapshotForOneThatFails(t *testing.T) {
	for seed := range 5 {
		inWorld(t, 3, func(t *testing.T, w *world) {
			leader := w.leader(t)
			away := w.others(leader)[0]
			w.crash(away)
			w.propose(t, leader, few("a", 20)...)
			time.Sleep(4 * time.Minute)
			for _, p := range w.others(away) {
				_, err := w.node(p).Compact(within(t, time.Minute))
				require.NoError(t, err)
			}
			d := w.disks[away.ID]
			d.CrashAt(d.Ops() + 8 + 7*seed) // somewhere on its way
			if n, err := w.open(away, slowly, minute); err == nil {
				time.Sleep(10 * time.Second)
				_ = n
				w.crash(away)
			} else {
				w.mu.Lock()
				w.disks[away.ID] = d.Crash()
				w.mu.Unlock()
			}
			w.start(away, slowly, minute)
			w.has(t, w.peers, few("a", 20)...)
			require.Empty(t, w.files(t, away, ".", "snap.received"))
		}, slowly, minute)
	}
}
