package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

// newGroup returns a factory of candidates whose stores use one table, each over a separate simulated
// network.
func newGroup(opts ...changefeed.Option) electiontest.Factory {
	return func(t electiontest.TB) *electiontest.Group {
		table := memory.NewTable()
		var mu sync.Mutex
		clients := map[int]*storetest.Faulty{}
		client := func(i int) *storetest.Faulty {
			mu.Lock()
			defer mu.Unlock()
			if clients[i] == nil {
				clients[i] = storetest.NewFaulty(table.Store("election"), uint64(i))
			}
			return clients[i]
		}
		t.Cleanup(func() {
			for _, c := range clients {
				if err := c.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			}
		})
		return &electiontest.Group{
			New: func(i int) (leaderelection.Candidate, error) {
				return changefeed.NewElection(client(i), append(slices.Clone(opts), changefeed.WithID(fmt.Sprint("candidate ", i)))...)
			},
			Crash: func(i int) { client(i).Cut() },
			Cut:   func(i int) func() { return client(i).Cut() },
		}
	}
}

// TestElection_SatisfiesContract checks that an Election satisfies the contract of candidates.
func TestElection_SatisfiesContract(t *testing.T) {
	electiontest.Run(t, newGroup(), electiontest.WithFakeTime())
}

// TestElection_SatisfiesContractWithKeepLeading checks that WithKeepLeading does not break the contract of
// candidates.
func TestElection_SatisfiesContractWithKeepLeading(t *testing.T) {
	electiontest.Run(t, newGroup(changefeed.WithKeepLeading()), electiontest.WithFakeTime())
}

// TestNewElection_RejectsUnsuitableStore checks that NewElection rejects a store that cannot serve elections, with
// an error that names the reason.
func TestNewElection_RejectsUnsuitableStore(t *testing.T) {
	_, err := changefeed.NewElection(nil)
	require.ErrorIs(t, err, leaderelection.ErrInvalid)
	_, err = changefeed.NewElection(&storeFuncs{start: func(context.Context) error {
		return fmt.Errorf("%w: no replica set", changefeed.ErrUnsuitable)
	}})
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	closed := memory.NewTable().Store("election")
	require.NoError(t, closed.Close())
	_, err = changefeed.NewElection(closed)
	require.ErrorIs(t, err, changefeed.ErrClosed)
	for problem, damage := range map[string]func(*changefeed.Record){
		"no version":           func(r *changefeed.Record) { r.Version = "" },
		"no epoch":             func(r *changefeed.Record) { r.Epoch = "" },
		"no seq":               func(r *changefeed.Record) { r.Seq = 0 },
		"a TTL of -":           func(r *changefeed.Record) { r.TTL = -1 },
		"term 1844":            func(r *changefeed.Record) { r.Term = math.MaxUint64 },
		"term 9223":            func(r *changefeed.Record) { r.Term = math.MaxInt64 },
		"term 900719925474099": func(r *changefeed.Record) { r.Term = 1 << 53 },
	} {
		s := memory.NewTable().Store("election")
		_, err := changefeed.NewElection(&storeFuncs{Store: s, read: func(ctx context.Context) (changefeed.Record, error) {
			r, err := s.Read(ctx)
			damage(&r)
			return r, err
		}})
		require.ErrorIs(t, err, changefeed.ErrUnsuitable)
		require.ErrorContains(t, err, problem)
	}
}

// TestNewElection_CanBeCalledAgainAfterFailure checks that NewElection takes no longer than documented, that its
// error wraps ErrUnreachable exactly if another call can succeed, and that NewElection can be called again.
func TestNewElection_CanBeCalledAgainAfterFailure(t *testing.T) {
	runInBubble(t, func(h *harness) {
		network := storetest.NewFaulty(h.table.Store("election"), 1)
		network.Set(storetest.Faults{Before: 1})
		_, err := changefeed.NewElection(network)
		require.ErrorIs(h, err, storetest.ErrInjected)
		require.ErrorIs(h, err, leaderelection.ErrUnreachable)
		require.NotContains(h, err.Error(), "ZooKeeper")
		for _, permanent := range []error{changefeed.ErrUnsuitable, changefeed.ErrClosed, leaderelection.ErrConnClosed} {
			_, err = changefeed.NewElection(&storeFuncs{start: func(context.Context) error { return permanent }})
			require.ErrorIs(h, err, permanent)
			require.NotErrorIs(h, err, leaderelection.ErrUnreachable)
		}
		heal := network.Cut()
		begin := time.Now()
		_, err = changefeed.NewElection(network)
		require.ErrorIs(h, err, leaderelection.ErrUnreachable)
		require.LessOrEqual(h, time.Since(begin), 11*time.Second)
		heal()
		network.Set(storetest.Faults{})
		e, err := changefeed.NewElection(network)
		require.NoError(h, err)
		require.NoError(h, e.Resign())
		require.NoError(h, network.Close())
	})
}

// TestNewElection_WithoutCreateUsesExistingRecord checks that NewElection with WithoutCreate does not
// create a record, but uses an existing record.
func TestNewElection_WithoutCreateUsesExistingRecord(t *testing.T) {
	runInBubble(t, func(h *harness) {
		_, err := changefeed.NewElection(h.table.Store("election"), changefeed.WithoutCreate())
		require.ErrorIs(h, err, leaderelection.ErrNoElection)
		require.NoError(h, h.newCandidate("creator").Resign())
		c := h.joinAndLead("one", changefeed.WithoutCreate())
		require.NoError(h, c.Resign())
	})
}

// TestWithContext_EndsCandidacyIfContextIsDone checks that a candidacy ends with the context of WithContext.
func TestWithContext_EndsCandidacyIfContextIsDone(t *testing.T) {
	runInBubble(t, func(h *harness) {
		ctx, cancel := context.WithCancel(h.Context())
		c := h.joinAndLead("one", changefeed.WithContext(ctx))
		l := c.Current().Leadership
		cancel()
		require.NoError(h, <-c.ended)
		require.ErrorIs(h, l.Err(), leaderelection.ErrResigned)
		require.Empty(h, h.record().Leader)
	})
}

// TestChanges_ReturnsResultOfStore checks that Changes passes the name to the store, and returns the store's
// error.
func TestChanges_ReturnsResultOfStore(t *testing.T) {
	table := memory.NewTable()
	e, err := changefeed.NewElection(&storeFuncs{
		Store: table.Store("election"),
		changes: func(_ context.Context, place string) (changefeed.Changes, error) {
			return nil, errors.New("changes of " + place)
		},
	})
	require.NoError(t, err)
	_, err = e.Changes(t.Context(), "another")
	require.EqualError(t, err, "changes of another")

	for place, s := range map[string]changefeed.Store{
		"another": table.Store("election"), "": storetest.NewFaulty(table.Store("election"), 1),
	} {
		e, err := changefeed.NewElection(s)
		require.NoError(t, err)
		_, err = e.Changes(t.Context(), place)
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
}

// TestResign_ReleasesRecordAndStopsWriting checks that a candidate that has resigned is not the leader, has released
// the record, has no open feed, and writes nothing more.
func TestResign_ReleasesRecordAndStopsWriting(t *testing.T) {
	runInBubble(t, func(h *harness) {
		one, two := h.join("one"), h.join("two")
		leader := h.awaitLeader()
		other := map[*candidate]*candidate{one: two, two: one}[leader]
		require.NoError(h, leader.Resign())
		require.Equal(h, leaderelection.Follower, leader.Current().Role)
		synctest.Wait()
		require.Same(h, other, h.leader())
		open, _ := leader.countFeeds()
		require.Zero(h, open)
		require.NoError(h, other.Resign())
		require.True(h, h.record().Leader == "" && h.record().TTL == 0)
		writes := leader.countWrites()
		time.Sleep(time.Hour)
		require.Equal(h, writes, leader.countWrites())
		require.Nil(h, h.leader())
		require.NoError(h, <-leader.ended)
	})
}

// TestResign_PreventsLateClaim checks that the store cannot execute a claim of the candidate, whose response was lost,
// after Resign has returned nil.
func TestResign_PreventsLateClaim(t *testing.T) {
	for seed := range 50 {
		runInBubble(t, func(h *harness) {
			c := h.newCandidate("one")
			c.network.Set(storetest.Faults{Delay: 5 * time.Second, Late: 1})
			c.start()
			for c.countWrites() == 0 {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(time.Duration(seed) * 20 * time.Millisecond)
			c.network.Set(storetest.Faults{})
			if c.Resign() != nil {
				return
			}
			seq := h.record().Seq
			for range 1000 {
				time.Sleep(10 * time.Millisecond)
				require.Empty(h, h.record().Leader)
				require.Equal(h, seq, h.record().Seq)
			}
		})
	}
}

// TestResign_ReturnsInTimeIfStoreHangs checks that Resign and EndElection take at most two seconds, report that
// the outcome is unknown, and retry the write in the background.
func TestResign_ReturnsInTimeIfStoreHangs(t *testing.T) {
	for _, name := range []string{"Resign", "EndElection"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, hang, release := memory.NewTable().Store("election"), make(chan struct{}), make(chan struct{})
				e, err := changefeed.NewElection(rejectingStore(s, func() error {
					select {
					case <-hang:
						<-release // The store ignores the context.
					default:
					}
					return nil
				}))
				require.NoError(t, err)
				l, ended := startLeader(t, e)
				close(hang)
				time.Sleep(1500 * time.Millisecond) // wait until a heartbeat is in flight and hangs
				begin := time.Now()
				end := e.Resign
				if name == "EndElection" {
					end = e.EndElection
				}
				require.ErrorIs(t, end(), leaderelection.ErrUnconfirmed)
				require.LessOrEqual(t, time.Since(begin), 2*time.Second)
				require.Error(t, l.Err())
				for range e.Status() { // the status channel must be closed
				}
				require.Equal(t, leaderelection.Follower, e.Current().Role)
				<-ended
				close(release)
				time.Sleep(10 * time.Second)
				require.NoError(t, end(), "the write was not retried")
				r, err := s.Read(t.Context())
				require.NoError(t, err)
				require.Equal(t, name == "EndElection", r.Ended)
				if name == "Resign" {
					require.Empty(t, r.Leader)
				}
			})
		})
	}
}
