package raftlog_test

// An update is applied once, or refused, or its outcome is not known.

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

func TestProposeFromAnyPeer(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		last := uint64(0)
		for _, p := range w.peers {
			index, err := w.node(p).Propose(within(t, time.Minute), requestid.New(), []byte(p.ID))
			require.NoError(t, err)
			require.Greater(t, index, last)
			last = index
			require.Contains(t, w.sm(p).all(), p.ID, "Propose returns when the peer that was asked has it")
		}
		w.has(t, w.peers, "p0", "p1", "p2")
	})
}

func TestProposeManyAtOnce(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		const n = 300
		errs := make(chan error, n)
		for i := range n {
			go func() {
				_, err := w.node(w.peers[i%3]).Propose(within(t, time.Minute), requestid.New(), []byte{byte(i), byte(i >> 8)})
				errs <- err
			}()
		}
		for range n {
			require.NoError(t, <-errs)
		}
		for _, p := range w.peers {
			require.NoError(t, w.node(p).Sync(within(t, time.Minute)))
		}
		require.Len(t, w.sm(w.peers[0]).all(), n)
		require.Equal(t, w.sm(w.peers[0]).all(), w.sm(w.peers[1]).all())
		require.Equal(t, w.sm(w.peers[0]).all(), w.sm(w.peers[2]).all())
	})
}

func TestProposeRepeated(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		id := requestid.New()
		index, err := w.node(w.peers[0]).Propose(within(t, time.Minute), id, []byte("once"))
		require.NoError(t, err)
		again := func(when string) {
			t.Helper()
			for _, p := range w.others() {
				n := w.node(p)
				if n == nil {
					continue
				}
				i, err := n.Propose(within(t, time.Minute), id, []byte("once"))
				require.NoError(t, err, when)
				require.Equal(t, index, i, when)
				_, err = n.Propose(within(t, time.Minute), id, []byte("other"))
				require.ErrorIs(t, err, api.ErrRequestIDReused, when)
			}
		}
		again("at once")
		w.propose(t, w.peers[1], "more")
		again("later")
		for _, p := range w.peers {
			require.NoError(t, w.stop(p))
		}
		w.startAll()
		again("after a restart of all")
		for _, p := range w.peers {
			_, err := w.node(p).Compact(within(t, time.Minute))
			require.NoError(t, err)
		}
		for _, p := range w.peers {
			w.crash(p)
		}
		w.startAll()
		again("after snapshots, and a power failure of all")
		w.has(t, w.peers, "once", "more")
	})
}

// A peer that joins by a snapshot knows the IDs of before, and when it leads as well.
func TestProposeRepeatedAtOneThatHasJoined(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		id := requestid.New()
		index, err := w.node(w.peers[0]).Propose(within(t, time.Minute), id, []byte("once"))
		require.NoError(t, err)
		for _, p := range w.peers {
			_, err := w.node(p).Compact(within(t, time.Minute))
			require.NoError(t, err)
		}
		fresh := peer(3)
		w.start(fresh)
		_, err = w.node(fresh).ChangePeers(within(t, time.Minute), requestid.New(), []api.Peer{fresh})
		require.NoError(t, err)
		await(t, "the new peer leads", func() bool { return leads(w.node(fresh)) })
		i, err := w.node(fresh).Propose(within(t, time.Minute), id, []byte("once"))
		require.NoError(t, err)
		require.Equal(t, index, i)
		w.has(t, []api.Peer{fresh}, "once")
	})
}

// Whoever repeats an update that is under way waits for the same.
func TestProposeRepeatedMeanwhile(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		leader := w.leader(t)
		heal := w.isolate(leader)
		id := requestid.New()
		type answer struct {
			index uint64
			err   error
		}
		answers := make(chan answer, 3)
		for range 3 {
			go func() {
				index, err := w.node(leader).Propose(within(t, time.Minute), id, []byte("once"))
				answers <- answer{index, err}
			}()
		}
		synctest.Wait()
		_, err := w.node(leader).Propose(within(t, time.Minute), id, []byte("other"))
		require.ErrorIs(t, err, api.ErrRequestIDReused)
		heal()
		first := <-answers
		require.NoError(t, first.err)
		require.Equal(t, first, <-answers)
		require.Equal(t, first, <-answers)
		w.has(t, w.peers, "once")
	})
}

func TestProposeRefuses(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		leader := w.leader(t)
		for _, p := range []api.Peer{leader, w.others(leader)[0]} {
			for _, c := range []struct {
				id   requestid.ID
				data []byte
				err  error
			}{
				{requestid.ID{}, nil, api.ErrInvalid},
				{requestid.At(time.Now().Add(-7*time.Hour - time.Second)), nil, api.ErrStale},
				{requestid.At(time.Now().Add(15*time.Minute + time.Second)), nil, api.ErrFuture},
				{requestid.New(), bytes.Repeat([]byte("x"), 101), api.ErrTooLarge},
			} {
				_, err := w.node(p).Propose(within(t, time.Minute), c.id, c.data)
				require.ErrorIs(t, err, c.err)
			}
			for _, at := range []time.Duration{-7*time.Hour + time.Second, 15*time.Minute - time.Second} {
				_, err := w.node(p).Propose(within(t, time.Minute), requestid.At(time.Now().Add(at)), []byte("in time"))
				require.NoError(t, err)
			}
			_, err := w.node(p).Propose(within(t, time.Minute), requestid.New(), bytes.Repeat([]byte("x"), 100))
			require.NoError(t, err)
		}
	}, func(c *raftlog.Config) { c.MaxData = 100 })
}

// A small MaxData is for updates: elections, and changes of the peers, work all the same.
func TestMaxDataIsForUpdates(t *testing.T) {
	small := func(c *raftlog.Config) { c.MaxData = 1 }
	inWorld(t, 3, func(t *testing.T, w *world) {
		c := stand(t, w.node(w.peers[0]), "e")
		c.awaitLeader(t)
		w.start(peer(3), small) // it may lead
		_, err := w.node(w.peers[0]).ChangePeers(within(t, time.Minute), requestid.New(), []api.Peer{peer(0), peer(1), peer(3)})
		require.NoError(t, err)
		_, err = w.node(w.peers[0]).Propose(within(t, time.Minute), requestid.New(), []byte("xx"))
		require.ErrorIs(t, err, api.ErrTooLarge)
	}, small)
}

// As many IDs as may be remembered are fresh: updates are refused, and taken again when the
// IDs are not fresh any more, whether anybody writes meanwhile or not.
func TestMaxRequestIDs(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		n, id := w.node(w.peers[0]), requestid.New()
		for i := range 3 {
			_, err := n.Propose(within(t, time.Minute), id, []byte("x"))
			require.NoError(t, err)
			if i == 0 {
				time.Sleep(210 * time.Second)
			}
			if i < 2 {
				id = requestid.New()
			}
		}
		_, err := n.Propose(within(t, time.Minute), requestid.New(), []byte("y"))
		require.ErrorIs(t, err, api.ErrTooManyIDs)
		_, err = n.Propose(within(t, time.Minute), id, []byte("x"))
		require.NoError(t, err, "one that is known is answered")
		began := time.Now()
		for {
			_, err := n.Propose(within(t, time.Minute), requestid.New(), []byte("z"))
			if err == nil {
				break
			}
			require.ErrorIs(t, err, api.ErrTooManyIDs)
			require.Less(t, time.Since(began), 4*time.Minute, "the first ID is not forgotten")
			time.Sleep(10 * time.Second)
		}
		require.Greater(t, time.Since(began), 80*time.Second, "fresh IDs were forgotten")
		_, err = n.Propose(within(t, time.Minute), id, []byte("x"))
		if err != nil { // it may be known a little longer
			require.ErrorIs(t, err, api.ErrStale)
		}
		w.has(t, w.peers, "x", "x", "x", "z")
	}, slowly, func(c *raftlog.Config) { c.MaxRequestIDs, c.Window = 3, 4*time.Minute })
}

// A peer that has an update under way, and loses the leader, does not know; the repeat tells.
func TestProposeWithUnknownOutcome(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		leader := w.leader(t)
		other := w.others(leader)[0]
		w.propose(t, other, "before")
		heal := w.isolate(leader)
		ids := []requestid.ID{requestid.New(), requestid.New()}
		for i, p := range []api.Peer{leader, other} {
			_, err := w.node(p).Propose(within(t, time.Minute), ids[i], []byte(p.ID))
			if p == leader {
				require.ErrorIs(t, err, api.ErrUnknownOutcome)
				continue
			}
			if err != nil {
				require.ErrorIs(t, err, api.ErrUnknownOutcome)
			}
			index := insist(t, w.node(p), ids[i], p.ID)
			again, err := w.node(p).Propose(within(t, time.Minute), ids[i], []byte(p.ID))
			require.NoError(t, err)
			require.Equal(t, index, again)
		}
		heal()
		_, err := w.node(leader).Propose(within(t, time.Minute), ids[0], []byte(leader.ID))
		require.NoError(t, err)
		w.has(t, w.peers, "before", other.ID, leader.ID)
	})
}

func TestProposeWithoutLeader(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		w.leader(t)
		for _, p := range w.peers[1:] {
			require.NoError(t, w.stop(p))
		}
		n := w.node(w.peers[0])
		await(t, "no leader", func() bool { return n.Info().Leader == api.Peer{} })
		began := time.Now()
		_, err := n.Propose(within(t, 5003*time.Millisecond), requestid.New(), []byte("x"))
		require.ErrorIs(t, err, api.ErrNotLeader)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 5003*time.Millisecond, time.Since(began))
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(1003*time.Millisecond, func() { cancel(cause) })
		_, err = n.Propose(ctx, requestid.New(), []byte("x"))
		require.ErrorIs(t, err, cause)
		require.ErrorIs(t, n.Sync(within(t, time.Second)), context.DeadlineExceeded)
		w.start(w.peers[1])
		w.propose(t, w.peers[0], "x")
	})
}

// What was confirmed survives power failures: of the leader, again and again, of all.
func TestProposeAndPowerFailures(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		var want []string
		for round := range 6 {
			leader := w.leader(t)
			asked := w.others(leader)[round%2]
			id := requestid.New()
			answer := make(chan error, 1)
			go func() {
				_, err := w.node(asked).Propose(within(t, time.Minute), id, []byte("meanwhile"+leader.ID))
				answer <- err
			}()
			time.Sleep(time.Duration(round) * time.Millisecond / 4)
			w.crash(leader)
			if err := <-answer; err != nil {
				require.ErrorIs(t, err, api.ErrUnknownOutcome)
			}
			insist(t, w.node(asked), id, "meanwhile"+leader.ID)
			w.start(leader)
			want = append(want, "meanwhile"+leader.ID)
			if round%3 == 2 {
				for _, p := range w.peers {
					w.crash(p)
				}
				w.startAll()
			}
		}
		w.has(t, w.peers, want...)
	})
}

func TestProposeAfterTheEnd(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		n := w.node(w.leader(t))
		synced, proposed := make(chan error, 1), make(chan error, 1)
		for _, p := range w.others(n.Info().Peer) {
			require.NoError(t, w.stop(p))
		}
		go func() {
			_, err := n.Propose(t.Context(), requestid.New(), []byte("x"))
			proposed <- err
		}()
		go func() { synced <- n.Sync(t.Context()) }()
		synctest.Wait()
		require.NoError(t, n.Close())
		require.ErrorIs(t, <-synced, api.ErrClosed)
		require.ErrorIs(t, <-proposed, api.ErrUnknownOutcome, "it is in the log of one of three")
		for range 10 { // none of them by chance
			_, err := n.Propose(t.Context(), requestid.New(), []byte("x"))
			require.ErrorIs(t, err, api.ErrClosed)
			require.NotErrorIs(t, err, api.ErrUnknownOutcome)
		}
		_, err := n.ChangePeers(t.Context(), requestid.New(), w.peers[:1])
		require.ErrorIs(t, err, api.ErrClosed)
		require.ErrorIs(t, n.Sync(t.Context()), api.ErrClosed)
		_, err = n.Compact(t.Context())
		require.ErrorIs(t, err, api.ErrClosed)
		_, err = n.Membership(t.Context())
		require.ErrorIs(t, err, api.ErrClosed)
		require.ErrorIs(t, n.Err(), api.ErrClosed)
		<-n.Done()
		require.NoError(t, n.Close())
	})
}

// What no leader takes is not sent to one.
func TestProposeMoreThanCanBeSent(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		for _, p := range w.peers {
			_, err := w.node(p).Propose(within(t, time.Minute), requestid.New(), make([]byte, 49<<20))
			require.ErrorIs(t, err, api.ErrTooLarge, "at %s", p.ID)
			require.NotErrorIs(t, err, api.ErrUnknownOutcome)
		}
	})
}
