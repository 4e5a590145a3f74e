package client

// The log as subscriptions tell it, over lost connections, snapshots and broken peers.

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/rpctest"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// next returns the next event, which has to come within a minute.
func next(w *world, s *Subscription) Event {
	w.Helper()
	select {
	case e, open := <-s.Events():
		require.True(w, open, "%v", s.Err())
		return e
	case <-time.After(time.Minute):
		require.Fail(w, "no event")
		return Event{}
	}
}

// until reads events until one of that kind.
func until(w *world, s *Subscription, kind EventKind) Event {
	for {
		if e := next(w, s); e.Kind == kind {
			return e
		}
	}
}

// end reads events until the subscription ends.
func end(w *world, s *Subscription) error {
	for range 1000 {
		if _, open := <-s.Events(); !open {
			break
		}
	}
	require.Error(w, s.Err())
	return s.Err()
}

// TestGapFree has connections cut 20 times at random, and a snapshot (Z1) that replaces
// entries while they are followed.
func TestGapFree(t *testing.T) {
	for seed := range uint64(5) {
		inBubble(t, all, func(w *world) {
			random := rand.New(rand.NewPCG(seed, 1))
			w.cluster.Append(100, 10)
			s := w.client.Subscribe(w.Context(), 1)
			defer s.Close()
			written := make(chan struct{})
			go func() {
				for cut := 0; cut < 20; {
					time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
					w.cluster.Append(random.IntN(20), 10)
					for _, p := range all {
						if random.IntN(3) == 0 && w.network.Cut(p.ID) > 0 {
							cut++
							if cut == 10 {
								// Nobody is connected: what was not followed yet is skipped.
								w.cluster.Append(3, 10)
								w.cluster.Compact([]byte("state"))
							}
						}
					}
				}
				close(written)
				w.cluster.Append(1, 10)
			}()
			var last uint64
			fresh := false
			snapshots, losses := 0, 0
			for done := false; !done || last < w.cluster.Last(); {
				e := next(w, s)
				switch e.Kind {
				case EventEntry:
					require.Equal(t, last+1, e.Entry.Index)
					last++
				case EventSnapshot:
					require.Greater(t, e.Snapshot.Index, last)
					data, err := io.ReadAll(e.Snapshot.Data)
					if err == nil {
						require.Equal(t, "state", string(data))
						last = e.Snapshot.Index
						snapshots++
					}
					require.NoError(t, e.Snapshot.Data.Close())
				case EventFresh:
					fresh = true
				case EventStale:
					fresh = false
					losses++
				}
				select {
				case <-written:
					done = true
				default:
				}
			}
			require.Equal(t, 1, snapshots)
			require.Positive(t, losses)
			if !fresh {
				require.EqualValues(t, last, w.cluster.Last())
				until(w, s, EventFresh)
			}
		})
	}
}

func TestGap(t *testing.T) {
	for name, wrong := range map[string]uint64{"gap": 4, "back": 2, "again": 1} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, all, func(w *world) {
				w.cluster.Append(5, 1)
				for _, p := range all {
					w.peer(p).Gap(func(index uint64) uint64 {
						if index == 3 {
							return wrong
						}
						return index
					})
				}
				s := w.client.Subscribe(w.Context(), 1)
				require.EqualValues(t, 1, next(w, s).Entry.Index)
				require.EqualValues(t, 2, next(w, s).Entry.Index)
				err := end(w, s)
				require.ErrorIs(t, err, ErrGap)
				gap, ok := errors.AsType[*GapError](err)
				require.True(t, ok)
				require.EqualValues(t, 3, gap.Want)
				require.Equal(t, wrong, gap.Got)
				require.Contains(t, all, gap.Peer)
				require.NoError(t, s.Close())
				require.ErrorIs(t, s.Err(), ErrGap)
			})
		})
	}
}

// TestSnapshotGoesBack: a snapshot of what was told already is no way on.
func TestSnapshotGoesBack(t *testing.T) {
	inBubble(t, all, func(w *world) {
		w.cluster.Append(5, 1)
		w.cluster.Compact(nil)
		for _, p := range all {
			w.peer(p).Gap(func(uint64) uint64 { return 2 })
		}
		s := w.client.Subscribe(w.within(time.Minute), 3)
		require.ErrorIs(t, end(w, s), ErrGap)
	})
}

// TestFreshness follows what a peer says of its leader.
func TestFreshness(t *testing.T) {
	inBubble(t, all, func(w *world) {
		w.cluster.Append(2, 1)
		s := w.client.Subscribe(w.Context(), 2)
		defer s.Close()
		require.EqualValues(t, 2, next(w, s).Entry.Index)
		e := next(w, s)
		require.Equal(t, EventFresh, e.Kind)
		require.Equal(t, a, e.Leader)
		first := e.Peer
		w.peer(first).Stale(true)
		e = next(w, s)
		require.Equal(t, EventStale, e.Kind)
		require.ErrorIs(t, e.Err, errNoLeader)
		begun := time.Now()
		e = next(w, s)
		require.Equal(t, EventFresh, e.Kind)
		require.NotEqual(t, first, e.Peer, "another peer has a leader")
		require.Less(t, time.Since(begun), 2*time.Second)
		second := e.Peer
		begun = time.Now()
		w.peer(second).Silent(true)
		e = next(w, s)
		require.Equal(t, EventTimeout, e.Kind)
		require.Equal(t, second, e.Peer)
		require.InDelta(t, time.Second, time.Since(begun), float64(rpctest.PulseEvery))
		require.Equal(t, EventStale, next(w, s).Kind)
		e = next(w, s)
		require.Equal(t, EventFresh, e.Kind)
		w.network.Cut(e.Peer.ID)
		e = next(w, s)
		require.Equal(t, EventStale, e.Kind)
		// It comes back, and only then is there news again.
		w.cluster.Append(1, 1)
		require.EqualValues(t, 3, until(w, s, EventEntry).Entry.Index)
	})
}

// TestNobodyLeads: peers without a leader are asked in turn, slowly.
func TestNobodyLeads(t *testing.T) {
	inBubble(t, all, func(w *world) {
		w.cluster.Lead(api.Peer{})
		s := w.client.Subscribe(w.within(time.Minute), 1, KeepaliveTimeout(2*time.Second))
		require.ErrorIs(t, end(w, s), context.DeadlineExceeded)
		require.InDelta(t, 27, w.calls("Entries"), 5)
		for _, p := range all {
			w.peer(p).Before(func(context.Context, string) error { return api.ErrBusy })
		}
		before := w.calls("Entries")
		s = w.client.Subscribe(w.within(30*time.Second), 1)
		require.ErrorIs(t, end(w, s), context.DeadlineExceeded)
		require.LessOrEqual(t, w.calls("Entries")-before, 200, "one in half a pause")
	})
}

// TestNobodyReads: what nobody reads stays with the peers, who do other calls.
func TestNobodyReads(t *testing.T) {
	inBubble(t, all, func(w *world) {
		w.cluster.Append(12_000, 1)
		s := w.client.Subscribe(w.Context(), 1)
		time.Sleep(time.Minute)
		var read uint64
		for _, p := range all {
			read += w.peer(p).Read()
		}
		require.Less(t, read, uint64(10_000))
		_, err := w.client.Propose(w.within(time.Second), requestid.New(), nil)
		require.NoError(t, err)
		for i := range uint64(12_001) {
			require.Equal(t, i+1, until(w, s, EventEntry).Entry.Index)
		}
		require.Equal(t, 1, w.calls("Entries"), "it was one stream all the time")
		require.NoError(t, s.Close())
	})
}

func TestFromLeader(t *testing.T) {
	inBubble(t, []api.Peer{b, c}, func(w *world) {
		s := w.client.Subscribe(w.Context(), 1, FromLeader())
		defer s.Close()
		time.Sleep(time.Second)
		go w.cluster.Append(1, 1)
		require.Equal(t, a, until(w, s, EventEntry).Peer)
		w.cluster.Lead(c)
		until(w, s, EventStale)
		go w.cluster.Append(1, 1)
		e := until(w, s, EventEntry)
		require.EqualValues(t, 2, e.Entry.Index)
		require.Equal(t, c, until(w, s, EventFresh).Peer)
	})
}

// TestSnapshotBreaks: a snapshot that was lost on its way comes again, one that is not
// wanted does not.
func TestSnapshotBreaks(t *testing.T) {
	inBubble(t, all, func(w *world) {
		w.cluster.Append(9, 1)
		w.cluster.Compact(make([]byte, 8<<20)) // more than is on its way at once
		w.cluster.Append(1, 1)
		s := w.client.Subscribe(w.Context(), 1)
		defer s.Close()
		e := next(w, s)
		require.EqualValues(t, 9, e.Snapshot.Index)
		_, err := io.ReadFull(e.Snapshot.Data, make([]byte, 1<<20))
		require.NoError(t, err)
		w.network.Cut(e.Peer.ID)
		_, err = io.Copy(io.Discard, e.Snapshot.Data)
		require.Error(t, err)
		require.NoError(t, e.Snapshot.Data.Close())
		e = next(w, s)
		require.Equal(t, EventSnapshot, e.Kind)
		n, err := io.Copy(io.Discard, e.Snapshot.Data)
		require.NoError(t, err)
		require.EqualValues(t, 8<<20, n)
		require.EqualValues(t, 10, next(w, s).Entry.Index)

		other := w.client.Subscribe(w.Context(), 5)
		e = next(w, other)
		require.Equal(t, EventSnapshot, e.Kind)
		require.NoError(t, e.Snapshot.Data.Close())
		require.EqualValues(t, 10, next(w, other).Entry.Index)
		require.NoError(t, other.Close())

		third := w.client.Subscribe(w.Context(), 1)
		e = next(w, third)
		require.NoError(t, third.Close())
		_, err = io.Copy(io.Discard, e.Snapshot.Data)
		require.ErrorIs(t, err, api.ErrClosed)
	})
}

func TestSubscriptionEnds(t *testing.T) {
	inBubble(t, all, func(w *world) {
		w.cluster.Append(3, 1)
		s := w.client.Subscribe(w.Context(), 1)
		synctest.Wait()
		require.NoError(t, s.Err())
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		require.ErrorIs(t, s.Err(), api.ErrClosed)
		_, open := <-s.Events()
		require.False(t, open)
		ctx, cancel := context.WithCancelCause(w.Context())
		s = w.client.Subscribe(ctx, 4)
		require.Equal(t, EventFresh, next(w, s).Kind)
		for _, p := range all {
			w.network.Cut(p.ID)
		}
		until(w, s, EventFresh)
		why := errors.New("enough")
		cancel(why)
		require.ErrorIs(t, end(w, s), why)
		require.NotContains(t, s.Err().Error(), "attempt", "a peer has answered")

		for _, p := range all {
			w.network.Down(p.ID, errors.New("nobody is here"))
		}
		s = w.client.Subscribe(w.within(time.Minute), 4)
		err := end(w, s)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "the last attempt: peer ")
		require.ErrorContains(t, err, "nobody is here")
	})
}

// TestSnapshotIsClosedTwice, as by who closes it at once, and by a defer.
func TestSnapshotIsClosedTwice(t *testing.T) {
	inBubble(t, all, func(w *world) {
		w.cluster.Append(9, 1)
		w.cluster.Compact(make([]byte, 1<<20))
		s := w.client.Subscribe(w.Context(), 1)
		defer s.Close()
		e := next(w, s)
		require.Equal(t, EventSnapshot, e.Kind)
		require.NoError(t, e.Snapshot.Data.Close())
		require.NoError(t, e.Snapshot.Data.Close())
		_, err := e.Snapshot.Data.Read(make([]byte, 1))
		require.ErrorIs(t, err, api.ErrClosed)
		require.Equal(t, EventFresh, next(w, s).Kind)
	})
}
