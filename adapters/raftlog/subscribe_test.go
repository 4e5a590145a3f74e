package raftlog_test

// A subscription misses nothing, and makes nobody wait.

import (
	"context"
	"encoding/gob"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/filelog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// next is the next event that is no pulse.
func next(t testing.TB, s *raftlog.Subscription) api.Event {
	t.Helper()
	for {
		select {
		case e, ok := <-s.Events():
			require.True(t, ok, "the subscription has ended: %v", s.Err())
			if e.Progress == nil {
				return e
			}
		case <-time.After(time.Minute):
			t.Fatal("no event")
		}
	}
}

// pulse is the next pulse for which is returns true.
func pulse(t testing.TB, s *raftlog.Subscription, is func(*api.Progress) bool) {
	t.Helper()
	for end := time.After(time.Minute); ; {
		select {
		case e, ok := <-s.Events():
			require.True(t, ok, "the subscription has ended: %v", s.Err())
			if e.Progress != nil && is(e.Progress) {
				return
			}
		case <-end:
			t.Fatal("no such pulse")
		}
	}
}

// reader follows a subscription, and checks that it has no gap.
type reader struct {
	next    uint64
	updates []string
	snaps   int
	skipped []uint64
}

func (r *reader) take(t testing.TB, e api.Event) {
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

// until reads until an update.
func (r *reader) until(t testing.TB, s *raftlog.Subscription, update string) {
	t.Helper()
	for len(r.updates) == 0 || r.updates[len(r.updates)-1] != update {
		r.take(t, next(t, s))
	}
}

func TestSubscribe(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		first := few("a", 20)
		w.propose(t, w.peers[0], first...)
		subs, readers := map[api.Peer]*raftlog.Subscription{}, map[api.Peer]*reader{}
		for i, p := range w.peers {
			s := w.node(p).Subscribe(t.Context(), uint64(i/2)) // 0 and 1 are the beginning
			defer s.Close()
			subs[p], readers[p] = s, &reader{next: 1}
			readers[p].until(t, s, first[19])
		}
		w.propose(t, w.peers[1], few("b", 20)...)
		middle := w.node(w.peers[2]).Info().LastApplied - 10
		for p, r := range readers {
			r.until(t, subs[p], "b19")
			require.Equal(t, append(few("a", 20), few("b", 20)...), r.updates)
			require.Equal(t, 1, r.snaps, "that of entry 1, with which a cluster begins")
		}
		s := w.node(w.peers[0]).Subscribe(t.Context(), middle)
		defer s.Close()
		r := &reader{next: middle}
		r.until(t, s, "b19")
		require.Zero(t, r.snaps)
		ahead := w.node(w.peers[0]).Subscribe(t.Context(), r.next+5)
		defer ahead.Close()
		w.propose(t, w.peers[0], few("c", 10)...)
		require.Equal(t, r.next+5, next(t, ahead).Entry.Index, "from is of an entry that is to come")
	})
}

// Entries that are gone are in a snapshot, with which a subscription begins.
func TestSubscribeOverASnapshot(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		n := w.node(w.peers[0])
		w.propose(t, w.peers[0], few("a", 10)...)
		slow := n.Subscribe(t.Context(), 1) // it has not read what is about to go
		defer slow.Close()
		time.Sleep(3 * time.Minute)
		w.propose(t, w.peers[0], few("b", 10)...)
		index, err := n.Compact(within(t, time.Minute))
		require.NoError(t, err)
		require.Greater(t, n.Info().FirstIndex, uint64(10))
		w.propose(t, w.peers[0], few("c", 10)...)
		want := append(append(few("a", 10), few("b", 10)...), few("c", 10)...)
		for _, from := range []uint64{1, 5} {
			s := n.Subscribe(t.Context(), from)
			r := &reader{next: from}
			e := next(t, s)
			require.NotNil(t, e.Snapshot)
			require.Equal(t, index, e.Snapshot.Index)
			r.take(t, e)
			r.until(t, s, "c9")
			require.Equal(t, want, r.updates)
			s.Close()
		}
		r := &reader{next: 1}
		r.until(t, slow, "c9")
		require.Equal(t, want, r.updates)
		behind := n.Subscribe(t.Context(), index+1)
		defer behind.Close()
		r = &reader{next: index + 1}
		r.until(t, behind, "c9")
		require.Equal(t, few("c", 10), r.updates)
		require.Zero(t, r.snaps)
	}, slowly, func(c *raftlog.Config) { c.Window = time.Minute })
}

// A reader that does not read holds nobody up, and goes on where it was.
func TestSubscribeSlowly(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		s := w.node(w.peers[0]).Subscribe(t.Context(), 1)
		defer s.Close()
		c := stand(t, w.node(w.peers[0]), "e")
		c.awaitLeader(t)
		big := make([]byte, 64<<10)
		for i := range 12 {
			_, err := w.node(w.peers[0]).Propose(within(t, time.Minute), requestid.New(), append(big, byte(i)))
			require.NoError(t, err)
		}
		require.True(t, c.leads())
		r := &reader{next: 1}
		for i := range 12 {
			r.until(t, s, string(append(big, byte(i))))
		}
		require.Len(t, r.updates, 12)
	})
}

// Two leaders, one after the other, can have written an update with the same ID: the second
// one is marked, and is not applied. (A leader that knows of the first does not write it, so
// it is put into the log here.)
func TestSubscribeSkipped(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p, id := w.peers[0], requestid.New()
		first, err := w.node(p).Propose(within(t, time.Minute), id, []byte("once"))
		require.NoError(t, err)
		require.NoError(t, w.stop(p))
		log, err := filelog.Open(w.disks[p.ID], "log", filelog.Options{SegmentSize: 64 << 10})
		require.NoError(t, err)
		last, err := log.LastIndex()
		require.NoError(t, err)
		term, err := log.Term(last)
		require.NoError(t, err)
		h := entry.Header{Kind: api.KindState, ID: id, Time: time.Now(), Sum: entry.Sum([]byte("once"))}
		require.NoError(t, log.Append(filelog.Batch{Sync: true, Entries: []*raftpb.Entry{{
			Type: raftpb.EntryNormal.Enum(), Index: new(last + 1), Term: new(term), Data: entry.Encode(h, []byte("once")),
		}}}))
		require.NoError(t, log.Close())
		w.start(p)
		w.propose(t, p, "later")
		s := w.node(p).Subscribe(t.Context(), 1)
		defer s.Close()
		r := &reader{next: 1}
		r.until(t, s, "later")
		require.Equal(t, []uint64{last + 1}, r.skipped)
		index, err := w.node(p).Propose(within(t, time.Minute), id, []byte("once"))
		require.NoError(t, err)
		require.Equal(t, first, index)
		w.has(t, w.peers, "once", "later")
		_, err = w.node(p).Compact(within(t, time.Minute))
		require.NoError(t, err)
		require.NoError(t, w.stop(p))
		w.start(p)
		again := w.node(p).Subscribe(t.Context(), last)
		defer again.Close()
		w.propose(t, p, "latest")
		r = &reader{next: last}
		r.until(t, again, "latest")
		require.Equal(t, []uint64{last + 1}, r.skipped, "a snapshot has the marks")
	})
}

func TestSubscribePulses(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		leader := w.leader(t)
		p := w.others(leader)[0]
		s := w.node(p).Subscribe(t.Context(), 1)
		defer s.Close()
		pulse(t, s, func(p *api.Progress) bool { return p.Fresh && p.Leader == leader && p.Term > 1 && p.Commit > 1 })
		heal := w.isolate(p)
		pulse(t, s, func(p *api.Progress) bool { return !p.Fresh })
		heal()
		pulse(t, s, func(p *api.Progress) bool { return p.Fresh })
		began := time.Now()
		pulse(t, s, func(*api.Progress) bool { return true })
		pulse(t, s, func(*api.Progress) bool { return true })
		require.LessOrEqual(t, time.Since(began), time.Second+100*time.Millisecond, "pulses come twice a second")
		l := w.node(leader).Subscribe(t.Context(), 1)
		defer l.Close()
		pulse(t, l, func(p *api.Progress) bool { return p.Fresh && p.Leader == leader })
	})
}

func TestSubscriptionEnds(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.propose(t, w.peers[0], few("a", 10)...)
		n := w.node(w.peers[0])
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
		require.ErrorIs(t, unread.Err(), api.ErrClosed, "it ends with the node, read or not")
	})
}

// Whoever has seen the end of the stream is told why it has ended.
func TestErrIsThereAtTheEnd(t *testing.T) {
	w := newWorld(t, 1)
	n := w.start(w.peers[0])
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

// opened counts a disk's open snapshots, and says when one is opened.
type opened struct {
	disk.FS
	count atomic.Int64
	told  func()
}

type openedFile struct {
	disk.File
	of *opened
}

func (o *opened) OpenRead(name string) (disk.File, error) {
	f, err := o.FS.OpenRead(name)
	if err != nil || name != "snap" {
		return f, err
	}
	o.count.Add(1)
	o.told()
	return openedFile{f, o}, nil
}

func (f openedFile) Close() error {
	f.of.count.Add(-1)
	return f.File.Close()
}

// A snapshot that nobody gets any more, since the subscription ends, is closed.
func TestSubscriptionEndsAtASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		p := w.peers[0]
		files := &opened{told: func() {}}
		n := w.start(p, slowly, minute, func(c *raftlog.Config) {
			files.FS = w.disks[p.ID]
			*c = c.OnDisk(files)
		})
		w.propose(t, p, few("a", 10)...)
		time.Sleep(4 * time.Minute)
		_, err := n.Compact(within(t, time.Minute))
		require.NoError(t, err)
		require.Greater(t, n.Info().FirstIndex, uint64(1))
		before := files.count.Load()
		ctx, cancel := context.WithCancel(t.Context())
		files.told = cancel
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
