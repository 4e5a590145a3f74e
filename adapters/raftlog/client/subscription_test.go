package client

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
)

// nextEvent returns the next event, and requires that it is received within a minute.
func nextEvent(t *testing.T, s *Subscription) Event {
	t.Helper()
	select {
	case e, open := <-s.Events():
		require.True(t, open, "%v", s.Err())
		return e
	case <-time.After(time.Minute):
		require.Fail(t, "no event")
		return Event{}
	}
}

// waitForEvent reads events until it receives an event of the given kind, which it returns.
func waitForEvent(t *testing.T, s *Subscription, kind EventKind) Event {
	for {
		if e := nextEvent(t, s); e.Kind == kind {
			return e
		}
	}
}

// waitForEnd reads events until the subscription ends, and returns its error.
func waitForEnd(t *testing.T, s *Subscription) error {
	for range 1000 {
		if _, open := <-s.Events(); !open {
			break
		}
	}
	require.Error(t, s.Err())
	return s.Err()
}

// TestSubscribe_DeliversEachEntryDespiteLostConnections checks that a subscription neither misses nor repeats
// an entry when connections are lost at random and a snapshot replaces entries. This covers defect Z1 of ØMQ
// Raft.
func TestSubscribe_DeliversEachEntryDespiteLostConnections(t *testing.T) {
	for seed := range uint64(5) {
		runCluster(t, all, func(t *testing.T, network *rpctest.Network, client *Client) {
			random := rand.New(rand.NewPCG(seed, 1))
			network.Append(100, 10)
			s := client.Subscribe(t.Context(), 1)
			defer s.Close()
			written := make(chan struct{})
			go func() {
				for cut := 0; cut < 20; {
					time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
					network.Append(random.IntN(20), 10)
					for _, p := range all {
						if random.IntN(3) == 0 && network.Cut(p.ID) > 0 {
							cut++
							if cut == 10 {
								// While no peer is connected, a snapshot replaces entries that were not
								// delivered.
								network.Append(3, 10)
								network.Compact([]byte("state"))
							}
						}
					}
				}
				close(written)
				network.Append(1, 10)
			}()
			var last uint64
			fresh := false
			snapshots, losses := 0, 0
			for done := false; !done || last < network.Last(); {
				e := nextEvent(t, s)
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
				require.EqualValues(t, last, network.Last())
				waitForEvent(t, s, EventFresh)
			}
		})
	}
}

// TestSubscribe_EndsAtGap checks that a subscription ends with a GapError, and delivers nothing more, when a
// peer sends an entry with an unexpected index.
func TestSubscribe_EndsAtGap(t *testing.T) {
	for name, index := range map[string]uint64{"gap": 4, "earlier": 2, "repeated": 1} {
		t.Run(name, func(t *testing.T) {
			runCluster(t, all, func(t *testing.T, network *rpctest.Network, client *Client) {
				network.Append(5, 1)
				for _, p := range all {
					network.Peer(p).Gap(func(i uint64) uint64 {
						if i == 3 {
							return index
						}
						return i
					})
				}
				s := client.Subscribe(t.Context(), 1)
				require.EqualValues(t, 1, nextEvent(t, s).Entry.Index)
				require.EqualValues(t, 2, nextEvent(t, s).Entry.Index)
				err := waitForEnd(t, s)
				require.ErrorIs(t, err, ErrGap)
				gap, ok := errors.AsType[*GapError](err)
				require.True(t, ok)
				require.EqualValues(t, 3, gap.Want)
				require.Equal(t, index, gap.Got)
				require.Contains(t, all, gap.Peer)
				require.NoError(t, s.Close())
				require.ErrorIs(t, s.Err(), ErrGap)
			})
		})
	}
}

// TestSubscribe_RejectsEarlierSnapshot checks that a subscription ends with ErrGap when a peer sends a snapshot
// of entries before the next entry to deliver.
func TestSubscribe_RejectsEarlierSnapshot(t *testing.T) {
	runCluster(t, all, func(t *testing.T, network *rpctest.Network, client *Client) {
		network.Append(5, 1)
		network.Compact(nil)
		for _, p := range all {
			network.Peer(p).Gap(func(uint64) uint64 { return 2 })
		}
		s := client.Subscribe(contextWithin(t, time.Minute), 3)
		require.ErrorIs(t, waitForEnd(t, s), ErrGap)
	})
}

// TestSubscribe_ReportsLostLeader checks that a subscription reports when its peer loses the leader, sends
// nothing or is disconnected, and continues at another peer.
func TestSubscribe_ReportsLostLeader(t *testing.T) {
	runCluster(t, all, func(t *testing.T, network *rpctest.Network, client *Client) {
		network.Append(2, 1)
		s := client.Subscribe(t.Context(), 2)
		defer s.Close()
		require.EqualValues(t, 2, nextEvent(t, s).Entry.Index)
		e := nextEvent(t, s)
		require.Equal(t, EventFresh, e.Kind)
		require.Equal(t, a, e.Leader)
		first := e.Peer
		network.Peer(first).Stale(true)
		e = nextEvent(t, s)
		require.Equal(t, EventStale, e.Kind)
		require.ErrorIs(t, e.Err, errNoLeader)
		start := time.Now()
		e = nextEvent(t, s)
		require.Equal(t, EventFresh, e.Kind)
		require.NotEqual(t, first, e.Peer, "the subscription has moved to another peer")
		require.Less(t, time.Since(start), 2*time.Second)
		second := e.Peer
		start = time.Now()
		network.Peer(second).Silent(true)
		e = nextEvent(t, s)
		require.Equal(t, EventTimeout, e.Kind)
		require.Equal(t, second, e.Peer)
		require.InDelta(t, time.Second, time.Since(start), float64(rpctest.PulseEvery))
		require.Equal(t, EventStale, nextEvent(t, s).Kind)
		e = nextEvent(t, s)
		require.Equal(t, EventFresh, e.Kind)
		network.Cut(e.Peer.ID)
		e = nextEvent(t, s)
		require.Equal(t, EventStale, e.Kind)
		// Append an entry only when the subscription is connected again.
		network.Append(1, 1)
		require.EqualValues(t, 3, waitForEvent(t, s, EventEntry).Entry.Index)
	})
}

// TestSubscribe_TriesAllPeersWithoutLeader checks that a subscription tries all peers, with pauses between
// retries, while there is no leader.
func TestSubscribe_TriesAllPeersWithoutLeader(t *testing.T) {
	runCluster(t, all, func(t *testing.T, network *rpctest.Network, client *Client) {
		network.Lead(api.Peer{})
		s := client.Subscribe(contextWithin(t, time.Minute), 1, WithKeepaliveTimeout(2*time.Second))
		require.ErrorIs(t, waitForEnd(t, s), context.DeadlineExceeded)
		require.InDelta(t, 27, countCalls(network, "Entries"), 5)
		for _, p := range all {
			network.Peer(p).Before(func(context.Context, string) error { return api.ErrBusy })
		}
		before := countCalls(network, "Entries")
		s = client.Subscribe(contextWithin(t, 30*time.Second), 1)
		require.ErrorIs(t, waitForEnd(t, s), context.DeadlineExceeded)
		require.LessOrEqual(t, countCalls(network, "Entries")-before, 200, "more than one attempt in half a pause")
	})
}

// TestSubscribe_StopsReadingIfEventsAreNotReceived checks that a subscription whose events are not received
// stops reading entries before the newest entry, and does not delay other calls.
func TestSubscribe_StopsReadingIfEventsAreNotReceived(t *testing.T) {
	runCluster(t, all, func(t *testing.T, network *rpctest.Network, client *Client) {
		network.Append(12_000, 1)
		s := client.Subscribe(t.Context(), 1)
		time.Sleep(time.Minute)
		var read uint64
		for _, p := range all {
			read += network.Peer(p).Read()
		}
		require.Less(t, read, uint64(10_000))
		_, err := client.Propose(contextWithin(t, time.Second), api.NewRequestID(), nil)
		require.NoError(t, err)
		for i := range uint64(12_001) {
			require.Equal(t, i+1, waitForEvent(t, s, EventEntry).Entry.Index)
		}
		require.Equal(t, 1, countCalls(network, "Entries"), "the subscription has used one stream")
		require.NoError(t, s.Close())
	})
}

// TestSubscribe_WithLeaderMovesToLeader checks that a subscription with the option WithLeader moves to the
// leader, and to the next leader.
func TestSubscribe_WithLeaderMovesToLeader(t *testing.T) {
	runCluster(t, []api.Peer{b, c}, func(t *testing.T, network *rpctest.Network, client *Client) {
		s := client.Subscribe(t.Context(), 1, WithLeader())
		defer s.Close()
		time.Sleep(time.Second)
		go network.Append(1, 1)
		require.Equal(t, a, waitForEvent(t, s, EventEntry).Peer)
		network.Lead(c)
		waitForEvent(t, s, EventStale)
		go network.Append(1, 1)
		e := waitForEvent(t, s, EventEntry)
		require.EqualValues(t, 2, e.Entry.Index)
		require.Equal(t, c, waitForEvent(t, s, EventFresh).Peer)
	})
}

// TestSubscribe_RepeatsIncompleteSnapshot checks that a subscription delivers a snapshot again if the
// connection is lost before the snapshot was read, and does not if the caller has closed the snapshot.
func TestSubscribe_RepeatsIncompleteSnapshot(t *testing.T) {
	runCluster(t, all, func(t *testing.T, network *rpctest.Network, client *Client) {
		network.Append(9, 1)
		network.Compact(make([]byte, 8<<20)) // a snapshot larger than the buffers of a connection
		network.Append(1, 1)
		s := client.Subscribe(t.Context(), 1)
		defer s.Close()
		e := nextEvent(t, s)
		require.EqualValues(t, 9, e.Snapshot.Index)
		_, err := io.ReadFull(e.Snapshot.Data, make([]byte, 1<<20))
		require.NoError(t, err)
		network.Cut(e.Peer.ID)
		_, err = io.Copy(io.Discard, e.Snapshot.Data)
		require.Error(t, err)
		require.NoError(t, e.Snapshot.Data.Close())
		e = nextEvent(t, s)
		require.Equal(t, EventSnapshot, e.Kind)
		n, err := io.Copy(io.Discard, e.Snapshot.Data)
		require.NoError(t, err)
		require.EqualValues(t, 8<<20, n)
		require.EqualValues(t, 10, nextEvent(t, s).Entry.Index)

		other := client.Subscribe(t.Context(), 5)
		e = nextEvent(t, other)
		require.Equal(t, EventSnapshot, e.Kind)
		require.NoError(t, e.Snapshot.Data.Close())
		require.EqualValues(t, 10, nextEvent(t, other).Entry.Index)
		require.NoError(t, other.Close())

		third := client.Subscribe(t.Context(), 1)
		e = nextEvent(t, third)
		require.NoError(t, third.Close())
		_, err = io.Copy(io.Discard, e.Snapshot.Data)
		require.ErrorIs(t, err, api.ErrClosed)
	})
}

// TestSubscription_ErrWrapsCauseAndLastAttempt checks that Err wraps the cause that has ended the subscription,
// and describes the last attempt if no peer has answered.
func TestSubscription_ErrWrapsCauseAndLastAttempt(t *testing.T) {
	runCluster(t, all, func(t *testing.T, network *rpctest.Network, client *Client) {
		network.Append(3, 1)
		s := client.Subscribe(t.Context(), 1)
		synctest.Wait()
		require.NoError(t, s.Err())
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		require.ErrorIs(t, s.Err(), api.ErrClosed)
		_, open := <-s.Events()
		require.False(t, open)
		ctx, cancel := context.WithCancelCause(t.Context())
		s = client.Subscribe(ctx, 4)
		require.Equal(t, EventFresh, nextEvent(t, s).Kind)
		for _, p := range all {
			network.Cut(p.ID)
		}
		waitForEvent(t, s, EventFresh)
		cause := errors.New("cancelled by the test")
		cancel(cause)
		require.ErrorIs(t, waitForEnd(t, s), cause)
		require.NotContains(t, s.Err().Error(), "attempt", "a peer has answered")

		for _, p := range all {
			network.Down(p.ID, errors.New("no route"))
		}
		s = client.Subscribe(contextWithin(t, time.Minute), 4)
		err := waitForEnd(t, s)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "the last attempt: peer ")
		require.ErrorContains(t, err, "no route")
	})
}

// TestSubscribe_SnapshotMayBeClosedTwice checks that closing the data of a snapshot twice returns no error.
func TestSubscribe_SnapshotMayBeClosedTwice(t *testing.T) {
	runCluster(t, all, func(t *testing.T, network *rpctest.Network, client *Client) {
		network.Append(9, 1)
		network.Compact(make([]byte, 1<<20))
		s := client.Subscribe(t.Context(), 1)
		defer s.Close()
		e := nextEvent(t, s)
		require.Equal(t, EventSnapshot, e.Kind)
		require.NoError(t, e.Snapshot.Data.Close())
		require.NoError(t, e.Snapshot.Data.Close())
		_, err := e.Snapshot.Data.Read(make([]byte, 1))
		require.ErrorIs(t, err, api.ErrClosed)
		require.Equal(t, EventFresh, nextEvent(t, s).Kind)
	})
}
