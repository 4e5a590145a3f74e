package raftlog_test

import (
	"context"
	"encoding/gob"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/filelog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/replica"
)

// waitForEvent returns the next event for which wanted returns true.
func waitForEvent(t testing.TB, s *raftlog.Subscription, wanted func(api.Event) bool) api.Event {
	t.Helper()
	for end := time.After(time.Minute); ; {
		select {
		case e, ok := <-s.Events():
			require.True(t, ok, "the subscription has ended: %v", s.Err())
			if wanted(e) {
				return e
			}
		case <-end:
			t.Fatal("the subscription delivers no such event within a minute")
		}
	}
}

// nextEvent returns the next event that does not only report progress.
func nextEvent(t testing.TB, s *raftlog.Subscription) api.Event {
	t.Helper()
	return waitForEvent(t, s, func(e api.Event) bool { return e.Progress == nil })
}

// waitForProgress reads events until an event reports progress for which met returns true.
func waitForProgress(t testing.TB, s *raftlog.Subscription, met func(*api.Progress) bool) {
	t.Helper()
	waitForEvent(t, s, func(e api.Event) bool { return e.Progress != nil && met(e.Progress) })
}

// streamReader collects the updates of a subscription, and checks that no entry is missing or repeated.
type streamReader struct {
	next    uint64
	updates []string
	snaps   int
	skipped []uint64
}

func (r *streamReader) handleEvent(t testing.TB, e api.Event) {
	t.Helper()
	switch {
	case e.Snapshot != nil:
		defer e.Snapshot.Data.Close()
		require.GreaterOrEqual(t, e.Snapshot.Index, r.next)
		r.next, r.updates = e.Snapshot.Index+1, nil
		r.snaps++
		if e.Snapshot.Size > 0 {
			require.NoError(t, gob.NewDecoder(e.Snapshot.Data).Decode(&r.updates))
		}
	case e.Entry != nil:
		require.Equal(t, r.next, e.Entry.Index)
		r.next++
		switch {
		case e.Entry.Kind != api.KindState:
		case e.Entry.Skipped:
			r.skipped = append(r.skipped, e.Entry.Index)
		default:
			r.updates = append(r.updates, string(e.Entry.Data))
		}
	}
}

// readUntil reads events until it has read the update.
func (r *streamReader) readUntil(t testing.TB, s *raftlog.Subscription, update string) {
	t.Helper()
	for len(r.updates) == 0 || r.updates[len(r.updates)-1] != update {
		r.handleEvent(t, nextEvent(t, s))
	}
}

// TestSubscribe_DeliversEveryEntry checks that a subscription at any peer delivers every entry from the index
// at which it starts.
func TestSubscribe_DeliversEveryEntry(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		first := numberedUpdates("a", 20)
		h.proposeAll(t, h.peers[0], first...)
		subs, readers := map[api.Peer]*raftlog.Subscription{}, map[api.Peer]*streamReader{}
		for i, p := range h.peers {
			s := h.nodeOf(p).Subscribe(t.Context(), uint64(i/2)) // the indexes 0 and 1 both mean the start of the log
			defer s.Close()
			subs[p], readers[p] = s, &streamReader{next: 1}
			readers[p].readUntil(t, s, first[19])
		}
		h.proposeAll(t, h.peers[1], numberedUpdates("b", 20)...)
		middle := h.nodeOf(h.peers[2]).Info().LastApplied - 10
		for p, r := range readers {
			r.readUntil(t, subs[p], "b19")
			require.Equal(t, append(numberedUpdates("a", 20), numberedUpdates("b", 20)...), r.updates)
			require.Equal(t, 1, r.snaps, "the snapshot of entry 1, with which a cluster starts")
		}
		s := h.nodeOf(h.peers[0]).Subscribe(t.Context(), middle)
		defer s.Close()
		r := &streamReader{next: middle}
		r.readUntil(t, s, "b19")
		require.Zero(t, r.snaps)
		ahead := h.nodeOf(h.peers[0]).Subscribe(t.Context(), r.next+5)
		defer ahead.Close()
		h.proposeAll(t, h.peers[0], numberedUpdates("c", 10)...)
		require.Equal(t, r.next+5, nextEvent(t, ahead).Entry.Index, "the subscription starts with a later entry")
	})
}

// TestSubscribe_DeliversSnapshotOfCompactedEntries checks that a subscription, or a peer that joins, continues
// after a snapshot if the entries that it needs were compacted. This covers defect Z1 of ØMQ Raft.
func TestSubscribe_DeliversSnapshotOfCompactedEntries(t *testing.T) {
	runCluster(t, 1, func(t *testing.T, h *harness) {
		n := h.nodeOf(h.peers[0])
		h.proposeAll(t, h.peers[0], numberedUpdates("a", 10)...)
		slow := n.Subscribe(t.Context(), 1) // this subscription has not read the entries that Compact deletes
		defer slow.Close()
		time.Sleep(3 * time.Minute)
		h.proposeAll(t, h.peers[0], numberedUpdates("b", 10)...)
		index := h.compact(t, h.peers[0])
		require.Greater(t, n.Info().FirstIndex, uint64(10))
		h.proposeAll(t, h.peers[0], numberedUpdates("c", 10)...)
		want := append(append(numberedUpdates("a", 10), numberedUpdates("b", 10)...), numberedUpdates("c", 10)...)
		for _, from := range []uint64{1, 5} {
			s := n.Subscribe(t.Context(), from)
			r := &streamReader{next: from}
			e := nextEvent(t, s)
			require.NotNil(t, e.Snapshot)
			require.Equal(t, index, e.Snapshot.Index)
			r.handleEvent(t, e)
			r.readUntil(t, s, "c9")
			require.Equal(t, want, r.updates)
			s.Close()
		}
		r := &streamReader{next: 1}
		r.readUntil(t, slow, "c9")
		require.Equal(t, want, r.updates)
		behind := n.Subscribe(t.Context(), index+1)
		defer behind.Close()
		r = &streamReader{next: index + 1}
		r.readUntil(t, behind, "c9")
		require.Equal(t, numberedUpdates("c", 10), r.updates)
		require.Zero(t, r.snaps)

		h.startPeer(peerInfo(1), slowElections, shortWindow)
		h.changeVoters(t, h.peers[0], peerInfo(0), peerInfo(1))
		h.proposeAll(t, peerInfo(1), "d")
		h.requireUpdates(t, []api.Peer{peerInfo(0), peerInfo(1)}, append(want, "d")...)
	}, slowElections, shortWindow)
}

// TestSubscribe_SlowReaderDoesNotDelayPeer checks that a subscription that is read slowly neither delays the
// peer nor misses entries.
func TestSubscribe_SlowReaderDoesNotDelayPeer(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		s := h.nodeOf(h.peers[0]).Subscribe(t.Context(), 1)
		defer s.Close()
		c := startLeader(t, h.nodeOf(h.peers[0]), "e")
		big := make([]byte, 64<<10)
		for i := range 12 {
			_, err := h.nodeOf(h.peers[0]).Propose(contextWithin(t, time.Minute), api.NewRequestID(), append(big, byte(i)))
			require.NoError(t, err)
		}
		require.True(t, c.isLeader())
		r := &streamReader{next: 1}
		for i := range 12 {
			r.readUntil(t, s, string(append(big, byte(i))))
		}
		require.Len(t, r.updates, 12)
	})
}

// TestSubscribe_RepeatedIDIsSkipped checks that an entry that repeats a request ID is not applied, and is
// marked as skipped, even after a snapshot. Two leaders can write such entries. A leader that knows the first
// entry does not write the second one, so the test writes it to the log.
func TestSubscribe_RepeatedIDIsSkipped(t *testing.T) {
	runCluster(t, 1, func(t *testing.T, h *harness) {
		p, id := h.peers[0], api.NewRequestID()
		first := h.propose(t, p, id, "once")
		require.NoError(t, h.stopPeer(p))
		log, err := filelog.Open(h.disks[p.ID], "log", filelog.Options{SegmentSize: 64 << 10})
		require.NoError(t, err)
		last, err := log.LastIndex()
		require.NoError(t, err)
		term, err := log.Term(last)
		require.NoError(t, err)
		header := replica.Header{Kind: api.KindState, ID: id, Time: time.Now(), Sum: replica.Sum([]byte("once"))}
		require.NoError(t, log.Append(filelog.Batch{Sync: true, Entries: []*raftpb.Entry{{
			Type: raftpb.EntryNormal.Enum(), Index: new(last + 1), Term: new(term), Data: replica.EncodeEntry(header, []byte("once")),
		}}}))
		require.NoError(t, log.Close())
		h.startPeer(p)
		h.proposeAll(t, p, "later")
		s := h.nodeOf(p).Subscribe(t.Context(), 1)
		defer s.Close()
		r := &streamReader{next: 1}
		r.readUntil(t, s, "later")
		require.Equal(t, []uint64{last + 1}, r.skipped)
		index := h.propose(t, p, id, "once")
		require.Equal(t, first, index)
		h.requireUpdates(t, h.peers, "once", "later")
		h.compact(t, p)
		h.restart(t, p)
		again := h.nodeOf(p).Subscribe(t.Context(), last)
		defer again.Close()
		h.proposeAll(t, p, "latest")
		r = &streamReader{next: last}
		r.readUntil(t, again, "latest")
		require.Equal(t, []uint64{last + 1}, r.skipped, "a snapshot includes which entries were skipped")
	})
}

// TestSubscribe_ReportsProgress checks that a subscription reports its progress twice a second, with Fresh set
// only while the peer has contact with a leader.
func TestSubscribe_ReportsProgress(t *testing.T) {
	runCluster(t, 3, func(t *testing.T, h *harness) {
		leader := h.waitForLeader(t)
		p := h.otherPeers(leader)[0]
		s := h.nodeOf(p).Subscribe(t.Context(), 1)
		defer s.Close()
		waitForProgress(t, s, func(p *api.Progress) bool { return p.Fresh && p.Leader == leader && p.Term > 1 && p.Commit > 1 })
		heal := h.isolate(p)
		waitForProgress(t, s, func(p *api.Progress) bool { return !p.Fresh })
		heal()
		waitForProgress(t, s, func(p *api.Progress) bool { return p.Fresh })
		start := time.Now()
		waitForProgress(t, s, func(*api.Progress) bool { return true })
		waitForProgress(t, s, func(*api.Progress) bool { return true })
		require.LessOrEqual(t, time.Since(start), time.Second+100*time.Millisecond, "progress is reported twice a second")
		l := h.nodeOf(leader).Subscribe(t.Context(), 1)
		defer l.Close()
		waitForProgress(t, l, func(p *api.Progress) bool { return p.Fresh && p.Leader == leader })
	})
}

// TestSubscription_EndsWithContextCloseOrNode checks that a subscription ends when its context is done, when it
// is closed, and when its node is closed, and that Err returns the reason.
func TestSubscription_EndsWithContextCloseOrNode(t *testing.T) {
	runCluster(t, 1, func(t *testing.T, h *harness) {
		h.proposeAll(t, h.peers[0], numberedUpdates("a", 10)...)
		n := h.nodeOf(h.peers[0])
		over := func(s *raftlog.Subscription) error {
			for range s.Events() {
			}
			return s.Err()
		}
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		byContext, byClose, byNode, unread := n.Subscribe(ctx, 1), n.Subscribe(t.Context(), 1), n.Subscribe(t.Context(), 1), n.Subscribe(t.Context(), 1)
		synctest.Wait()
		require.NoError(t, byNode.Err())
		cancel(cause)
		require.ErrorIs(t, over(byContext), cause)
		byClose.Close()
		byClose.Close()
		require.Error(t, over(byClose))
		require.NoError(t, n.Close())
		require.ErrorIs(t, over(byNode), api.ErrClosed)
		require.ErrorIs(t, over(n.Subscribe(t.Context(), 1)), api.ErrClosed)
		synctest.Wait()
		require.ErrorIs(t, unread.Err(), api.ErrClosed, "the subscription ends with the node")
	})
}

// TestSubscription_EndsBeforeCloseOfNodeReturns checks that Close of a node waits for a subscription that reads
// files, and that a subscription that is created after Close ends immediately.
func TestSubscription_EndsBeforeCloseOfNodeReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, 1)
		p := h.peers[0]
		files := &countingDisk{onOpen: func() {}}
		n := h.startPeer(p, func(c *raftlog.Config) {
			files.FS = h.disks[p.ID]
			*c = c.OnDisk(files)
		})
		h.waitForLeader(t)
		opened, release := make(chan struct{}), make(chan struct{})
		files.onOpen = func() { close(opened); <-release }
		reading := n.Subscribe(t.Context(), 1)
		<-opened
		closed := make(chan error, 1)
		go func() { closed <- n.Close() }()
		time.Sleep(time.Second)
		require.Empty(t, closed, "Close has returned while the subscription reads a snapshot")
		close(release)
		require.NoError(t, <-closed)
		for _, s := range []*raftlog.Subscription{reading, n.Subscribe(t.Context(), 1)} {
			select {
			case _, open := <-s.Events():
				require.False(t, open, "the snapshot was delivered")
			default:
				require.Fail(t, "the subscription has not ended")
			}
			require.ErrorIs(t, s.Err(), api.ErrClosed)
		}
	})
}

// TestSubscription_ErrIsSetWhenEventsIsClosed checks that Err returns the reason as soon as the channel of
// Events is closed.
func TestSubscription_ErrIsSetWhenEventsIsClosed(t *testing.T) {
	h := newHarness(t, 1)
	n := h.startPeer(h.peers[0])
	for range 2000 {
		ctx, cancel := context.WithCancel(t.Context())
		s := n.Subscribe(ctx, 1)
		go cancel()
		for range s.Events() {
		}
		require.ErrorIs(t, s.Err(), context.Canceled)
		s.Close()
	}
}

// countingDisk counts the open snapshot files of a disk, and calls onOpen when a snapshot file is opened.
type countingDisk struct {
	disk.FS
	count  atomic.Int64
	onOpen func()
}

// countedFile is an open snapshot file that a countingDisk counts.
type countedFile struct {
	disk.File
	of *countingDisk
}

func (o *countingDisk) OpenRead(name string) (disk.File, error) {
	f, err := o.FS.OpenRead(name)
	if err != nil || name != "snap" {
		return f, err
	}
	o.count.Add(1)
	o.onOpen()
	return countedFile{f, o}, nil
}

func (f countedFile) Close() error {
	f.of.count.Add(-1)
	return f.File.Close()
}

// TestSubscription_ClosesUndeliveredSnapshot checks that a subscription that ends before it has delivered a
// snapshot closes the file of the snapshot.
func TestSubscription_ClosesUndeliveredSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, 1)
		p := h.peers[0]
		files := &countingDisk{onOpen: func() {}}
		n := h.startPeer(p, slowElections, shortWindow, func(c *raftlog.Config) {
			files.FS = h.disks[p.ID]
			*c = c.OnDisk(files)
		})
		h.proposeAll(t, p, numberedUpdates("a", 10)...)
		time.Sleep(4 * time.Minute)
		_, err := n.Compact(contextWithin(t, time.Minute))
		require.NoError(t, err)
		require.Greater(t, n.Info().FirstIndex, uint64(1))
		before := files.count.Load()
		ctx, cancel := context.WithCancel(t.Context())
		files.onOpen = cancel
		s := n.Subscribe(ctx, 1)
		for e := range s.Events() {
			if e.Snapshot != nil {
				require.NoError(t, e.Snapshot.Data.Close())
			}
		}
		require.ErrorIs(t, s.Err(), context.Canceled)
		require.Equal(t, before, files.count.Load())
	})
}
