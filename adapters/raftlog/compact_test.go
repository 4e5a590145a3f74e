package raftlog_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
)

// stallingDisk is a disk that, after the node has installed a received snapshot, blocks the creation of the new
// log until release is closed. It closes reached when the node tries to create that log.
type stallingDisk struct {
	disk.FS
	placed           bool // the received snapshot is installed; used only by the goroutine that writes the log
	reached, release chan struct{}
}

func (s *stallingDisk) Rename(from, to string) error {
	if s.placed && strings.HasPrefix(to, "log/") {
		s.placed = false
		close(s.reached)
		<-s.release
	}
	s.placed = s.placed || strings.HasPrefix(from, "snap.received")
	return s.FS.Rename(from, to)
}

// peerBehindSnapshot isolates peer p until p needs a snapshot from the leader, and calls Compact at p. The
// caller calls heal to let p receive the leader's snapshot, closes release to let Compact write its own
// snapshot, and receives the result of Compact from done.
func (h *harness) peerBehindSnapshot(t *testing.T, release chan struct{}, opts ...func(*raftlog.Config)) (p api.Peer, heal func(), done chan error) {
	leader := h.waitForLeader(t)
	p = h.otherPeers(leader)[0]
	h.restart(t, p, append([]func(*raftlog.Config){slowElections, shortWindow}, opts...)...)
	h.proposeAll(t, leader, "early")
	h.syncPeer(t, p)
	heal = h.leaveBehind(t, p)
	started := make(chan struct{})
	h.machine(p).beforeWrite(func(io.Writer) error { close(started); <-release; return nil })
	done = make(chan error, 1)
	go func() {
		index, err := h.nodeOf(p).Compact(t.Context())
		if err == nil && (index != h.nodeOf(p).Info().SnapshotIndex || index < 20) {
			t.Errorf("Compact returned entry %d; the peer has a snapshot of entry %d", index, h.nodeOf(p).Info().SnapshotIndex)
		}
		done <- err
	}()
	<-started
	return p, heal, done
}

// TestCompact_ReturnsWhenLeaderSentNewerSnapshot checks that Compact does not wait for its own snapshot when
// the leader has sent a newer snapshot.
func TestCompact_ReturnsWhenLeaderSentNewerSnapshot(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		release := make(chan struct{})
		p, heal, done := h.peerBehindSnapshot(t, release)
		heal()
		require.NoError(t, receive(t, done))
		close(release)
		h.proposeAll(t, p, "later")
		h.requireUpdates(t, h.peers, append(append([]string{"early"}, numberedUpdates("a", 20)...), "later")...)
	}, slowElections, shortWindow)
}

// TestCompact_ReturnsIfCoreLacksNewerSnapshot checks that Compact returns if the leader's newer snapshot is
// already on the disk, but the loop has not reported it to the core yet.
func TestCompact_ReturnsIfCoreLacksNewerSnapshot(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		release := make(chan struct{})
		s := &stallingDisk{reached: make(chan struct{}), release: make(chan struct{})}
		p, heal, done := h.peerBehindSnapshot(t, release, func(c *raftlog.Config) {
			s.FS = h.disks[c.ID]
			*c = c.OnDisk(s)
		})
		heal()
		<-s.reached
		close(release)
		synctest.Wait() // wait until Compact could have noticed the newer snapshot
		require.Empty(t, done, "Compact returned before the newer snapshot was installed")
		close(s.release)
		require.NoError(t, receive(t, done))
		h.proposeAll(t, p, "later")
		h.requireUpdates(t, h.peers, append(append([]string{"early"}, numberedUpdates("a", 20)...), "later")...)
	}, slowElections, shortWindow)
}

// TestCompact_KeepsEntriesWithinWindow checks that Compact truncates the log up to the snapshot, except for
// entries whose request IDs are within the deduplication window, and that it deletes no file.
func TestCompact_KeepsEntriesWithinWindow(t *testing.T) {
	runCluster(t, 1, func(t *testing.T, h *harness) {
		p := h.peers[0]
		n := h.nodeOf(p)
		pad := strings.Repeat("x", 8<<10)
		var want []string
		for _, u := range numberedUpdates("a", 40) {
			want = append(want, u+pad)
		}
		h.proposeAll(t, p, want...)
		fresh := n.Info()
		index := h.compact(t, p)
		require.Equal(t, fresh.LastApplied, index)
		i := n.Info()
		require.Equal(t, index, i.SnapshotIndex)
		require.Positive(t, i.SnapshotSize)
		require.Equal(t, fresh.PruneIndex+1, i.FirstIndex, "entries with IDs within the window must be kept")
		require.Empty(t, n.PrunableFiles())
		require.Len(t, h.listFiles(t, p, ".", "snap-"), 1, "only the previous snapshot, of entry 1, must be kept")
		segments := h.listFiles(t, p, "log", "")
		require.Greater(t, len(segments), 2)

		time.Sleep(4 * time.Minute) // no client writes, but IDs expire
		require.Zero(t, n.Info().RequestIDs)
		index = h.compact(t, p)
		require.Equal(t, index+1, n.Info().FirstIndex)
		require.NotEmpty(t, n.PrunableFiles())
		require.Subset(t, h.listFiles(t, p, "log", ""), segments, "no file is deleted")
		backups := h.listFiles(t, p, ".", "snap-")
		require.Len(t, backups, 2)
		for _, b := range backups {
			require.True(t, strings.HasSuffix(b, ".bak"), b)
		}
		for _, f := range n.PrunableFiles() {
			require.NoError(t, h.disks[p.ID].Remove(f))
		}
		h.proposeAll(t, p, "behind")
		want = append(want, "behind")
		h.restart(t, p, slowElections, shortWindow)
		require.Equal(t, index+1, h.nodeOf(p).Info().FirstIndex)
		h.requireUpdates(t, h.peers, want...)
		h.crashPeer(p)
		h.startPeer(p, slowElections, shortWindow)
		h.requireUpdates(t, h.peers, want...)
	}, slowElections, shortWindow)
}

// TestCompact_ReturnsWriteErrorAndKeepsSnapshot checks that Compact returns the error of a state machine that
// cannot write its snapshot, and keeps the previous snapshot.
func TestCompact_ReturnsWriteErrorAndKeepsSnapshot(t *testing.T) {
	runCluster(t, 1, func(t *testing.T, h *harness) {
		p := h.peers[0]
		h.proposeAll(t, p, numberedUpdates("a", 10)...)
		index := h.compact(t, p)
		h.proposeAll(t, p, "b")
		broken := errors.New("cannot be written")
		h.machine(p).beforeWrite(func(io.Writer) error { return broken })
		_, err := h.nodeOf(p).Compact(t.Context())
		require.ErrorIs(t, err, broken)
		require.Equal(t, index, h.nodeOf(p).Info().SnapshotIndex)
		require.Empty(t, h.listFiles(t, p, ".", "snap.tmp"))
		h.machine(p).beforeWrite(nil)
		h.compact(t, p)
		require.NoError(t, h.nodeOf(p).Err())
	})
}

// TestCompact_DoesNotBlockUpdatesOrReaders checks that updates, and readers of the previous snapshot, do not
// wait while Compact writes a snapshot.
func TestCompact_DoesNotBlockUpdatesOrReaders(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		p := h.waitForLeader(t)
		h.proposeAll(t, p, numberedUpdates("a", 10)...)
		started, release := make(chan struct{}), make(chan struct{})
		h.machine(p).beforeWrite(func(io.Writer) error { close(started); <-release; return nil })
		done := make(chan error, 1)
		go func() {
			_, err := h.nodeOf(p).Compact(t.Context())
			done <- err
		}()
		<-started
		h.proposeAll(t, p, "b")
		s := h.nodeOf(p).Subscribe(t.Context(), 1) // entry 1 is available only in the previous snapshot
		require.NotNil(t, nextEvent(t, s).Snapshot)
		s.Close()
		close(release)
		require.NoError(t, <-done)
		h.proposeAll(t, p, "c")
		h.crashPeer(p)
		h.startPeer(p)
		h.requireUpdates(t, h.peers, append(numberedUpdates("a", 10), "b", "c")...)
	})
}
