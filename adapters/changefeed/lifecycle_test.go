package changefeed_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/changefeedtest"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
)

func TestOptionsAreRefused(t *testing.T) {
	var nobody context.Context
	store := memory.NewTable().Store("election")
	for name, opts := range map[string][]changefeed.Option{
		"an option is nil":       {nil},
		"WithContext(nil)":       {changefeed.WithContext(nobody)},
		"WithLogger(nil)":        {changefeed.WithLogger(nil)},
		"WithHeartbeat(0s)":      {changefeed.WithHeartbeat(0)},
		"WithHeartbeat(-1s)":     {changefeed.WithHeartbeat(-time.Second)},
		"WithHeartbeat(48h0m0s)": {changefeed.WithHeartbeat(48 * time.Hour)},
		"at least two heartbeats": {
			changefeed.WithElectionTimeout(1500*time.Millisecond, 4*time.Second),
		},
		"the second must be greater": {changefeed.WithElectionTimeout(3*time.Second, 3*time.Second)},
		"the second is too long":     {changefeed.WithElectionTimeout(3*time.Second, math.MaxInt64)},
		"too short for a heartbeat":  {changefeed.WithLease(1500 * time.Millisecond)},
		"a safety margin of 1s": {
			changefeed.WithStopGuard(time.Second),
		},
		"must not be negative":                  {changefeed.WithStopGuard(-1)},
		"exceeds the shortest election timeout": {changefeed.WithLease(1800 * time.Millisecond)},
		"must be between 0 and 0.5":             {changefeed.WithClockDrift(math.NaN())},
		"WithID: the ID is empty":               {changefeed.WithID("")},
		"the limit is 4000":                     {changefeed.WithID(strings.Repeat("x", 4001))},
		"not UTF-8 text without NUL":            {changefeed.WithID("a\x00b")},
		`\xff`:                                  {changefeed.WithID("\xff")},
	} {
		_, err := changefeed.NewElection(store, opts...)
		require.ErrorIs(t, err, leaderelection.ErrInvalidOption)
		require.ErrorContains(t, err, name)
		require.ErrorIs(t, changefeed.DeleteElection(store, opts...), leaderelection.ErrInvalidOption)
		_, err = store.Read(t.Context())
		require.ErrorIs(t, err, changefeed.ErrNoRecord, "something was changed")
	}
	// Clocks that can be that wrong need a longer election timeout, and that is said.
	_, err := changefeed.NewElection(store, changefeed.WithClockDrift(0.4))
	require.ErrorIs(t, err, leaderelection.ErrInvalidOption)
	require.ErrorContains(t, err, "use a longer lease")
	_, err = changefeed.NewElection(store, changefeed.WithClockDrift(0.4), changefeed.WithElectionTimeout(4*time.Second, 8*time.Second))
	require.NoError(t, err)
}

// broken is a store with one method that fails.
type broken struct {
	changefeed.Store
	start error
	read  func(changefeed.Record) (changefeed.Record, error)
}

func (b *broken) Start(ctx context.Context) error {
	if b.start != nil {
		return b.start
	}
	return b.Store.Start(ctx)
}

func (b *broken) Read(ctx context.Context) (changefeed.Record, error) {
	r, err := b.Store.Read(ctx)
	if err == nil && b.read != nil {
		r, err = b.read(r)
	}
	return r, err
}

// Stores that cannot work are refused at the start, by what is wrong with them.
func TestStartRefusesStores(t *testing.T) {
	_, err := changefeed.NewElection(nil)
	require.ErrorIs(t, err, leaderelection.ErrNilConn)
	_, err = changefeed.NewElection(&broken{start: fmt.Errorf("%w: no replica set", changefeed.ErrUnsuitable)})
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	closed := memory.NewTable().Store("election")
	require.NoError(t, closed.Close())
	_, err = changefeed.NewElection(closed)
	require.ErrorIs(t, err, changefeed.ErrClosed)
	for what, damage := range map[string]func(*changefeed.Record){
		"no version": func(r *changefeed.Record) { r.Version = "" },
		"no epoch":   func(r *changefeed.Record) { r.Epoch = "" },
		"no seq":     func(r *changefeed.Record) { r.Seq = 0 },
		"a TTL of -": func(r *changefeed.Record) { r.TTL = -1 },
		"term 1844":  func(r *changefeed.Record) { r.Term = math.MaxUint64 },
	} {
		_, err := changefeed.NewElection(&broken{
			Store: memory.NewTable().Store("election"),
			read:  func(r changefeed.Record) (changefeed.Record, error) { damage(&r); return r, nil },
		})
		require.ErrorIs(t, err, changefeed.ErrUnsuitable)
		require.ErrorContains(t, err, what)
	}
}

// A record that is damaged during the election ends a leadership, and no candidacy: the errors
// are reported, and the election continues when the record has been repaired.
func TestDamagedRecord(t *testing.T) {
	inBubble(t, func(a *arena) {
		p := a.join("one")
		require.Same(a, p, a.leader())
		l := p.Current().Leadership
		good := a.record()
		bad := good
		bad.Epoch, bad.Seq = "", bad.Seq+1
		_, err := a.table.Store("election").Heartbeat(a.Context(), good, bad)
		require.NoError(a, err)
		time.Sleep(time.Minute)
		require.Error(a, l.Err())
		require.Nil(a, a.leading())
		require.NoError(a, p.Current().Err)
		require.ErrorIs(a, p.received(leaderelection.EventWatchFailed)[0].Err, changefeed.ErrUnsuitable)
		require.Less(a, len(p.received(leaderelection.EventWatchFailed)), 70, "it is repeated once per heartbeat")
		good.Seq = bad.Seq + 1
		_, err = a.table.Store("election").Heartbeat(a.Context(), a.record(), good)
		require.NoError(a, err)
		require.Same(a, p, a.leader())
	})
}

// hung is a store that answers nothing, and heeds no context, while it is told so.
type hung struct {
	changefeed.Store
	free chan struct{} // closed when it answers
	on   chan struct{} // closed when it begins to hang
}

func (h *hung) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	select {
	case <-h.on:
		<-h.free
	default:
	}
	return h.Store.Heartbeat(ctx, prev, next)
}

func (h *hung) Read(ctx context.Context) (changefeed.Record, error) {
	select {
	case <-h.on:
		<-h.free
	default:
	}
	return h.Store.Read(ctx)
}

// Whatever the store does, the end takes two seconds, and says what is open.
func TestEndsWhileTheStoreHangs(t *testing.T) {
	for _, name := range []string{"Resign", "EndElection"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := memory.NewTable()
				h := &hung{Store: table.Store("election"), free: make(chan struct{}), on: make(chan struct{})}
				e, err := changefeed.NewElection(h)
				require.NoError(t, err)
				ended := make(chan error, 1)
				go func() { ended <- e.ElectLeader() }()
				var l *leaderelection.Leadership
				for l == nil {
					l = (<-e.Status()).Leadership
				}
				close(h.on)
				time.Sleep(1500 * time.Millisecond) // a heartbeat hangs
				begin := time.Now()
				end := e.Resign
				if name == "EndElection" {
					end = e.EndElection
				}
				require.ErrorIs(t, end(), leaderelection.ErrUnconfirmed)
				require.LessOrEqual(t, time.Since(begin), 2*time.Second)
				require.Error(t, l.Err())
				for range e.Status() { // is closed
				}
				require.Equal(t, leaderelection.Follower, e.Current().Role)
				<-ended
				close(h.free)
				time.Sleep(10 * time.Second)
				require.NoError(t, end()) // it went on in the background
				r, err := h.Store.Read(t.Context())
				require.NoError(t, err)
				require.Equal(t, name == "EndElection", r.Ended)
				if name == "Resign" {
					require.Empty(t, r.Leader)
				}
			})
		})
	}
}

// A claim whose answer was lost cannot come true after Resign was confirmed.
func TestNoClaimAfterResign(t *testing.T) {
	for seed := range 50 {
		inBubble(t, func(a *arena) {
			p := a.make("one")
			p.net.Set(changefeedtest.Faults{Delay: 5 * time.Second, Late: 1})
			p.start()
			for p.sent() == 0 {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(time.Duration(seed) * 20 * time.Millisecond)
			p.net.Set(changefeedtest.Faults{})
			if p.Resign() != nil {
				return
			}
			seq := a.record().Seq
			for range 1000 {
				time.Sleep(10 * time.Millisecond)
				require.Empty(a, a.record().Leader)
				require.Equal(a, seq, a.record().Seq)
			}
		})
	}
}

// A feed that is silent is given up, and opened anew.
func TestSilentFeed(t *testing.T) {
	inBubble(t, func(a *arena) {
		leader := a.join("leader")
		require.Same(a, leader, a.leader())
		deaf := a.make("deaf")
		deaf.net.Set(changefeedtest.Faults{FeedSilence: 1})
		deaf.start()
		a.watch(20 * time.Second)
		require.Same(a, leader, a.leading())
		errs := deaf.received(leaderelection.EventWatchFailed)
		require.NotEmpty(a, errs)
		require.ErrorIs(a, errs[0].Err, changefeed.ErrStale)
		deaf.net.Set(changefeedtest.Faults{})
		a.watch(5 * time.Second)
		require.Equal(a, "leader", deaf.Current().NowFollowing)
	})
}

// slowToClose is a store whose feeds take a minute to close.
type slowToClose struct{ changefeed.Store }

func (s slowToClose) Subscribe(ctx context.Context) (changefeed.Feed, error) {
	f, err := s.Store.Subscribe(ctx)
	return slowFeed{f}, err
}

type slowFeed struct{ changefeed.Feed }

func (f slowFeed) Close() error {
	time.Sleep(time.Minute)
	return f.Feed.Close()
}

// What a candidacy leaves behind keeps nobody who ends the election, or nominates.
func TestEndElectionAfterResign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := changefeed.NewElection(slowToClose{memory.NewTable().Store("election")})
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- e.ElectLeader() }()
		for (<-e.Status()).Leadership == nil {
		}
		require.NoError(t, e.Resign())
		begin := time.Now()
		require.NoError(t, e.Elect(t.Context(), "other"))
		require.NoError(t, e.EndElection())
		require.LessOrEqual(t, time.Since(begin), 2*time.Second)
		require.NoError(t, <-ended)
		time.Sleep(time.Minute)
	})
}

// A store that was put back to an older state, by a failover or from a backup, goes on
// from there: the leader if it was that already, and otherwise somebody with a new token.
func TestStoreThatForgets(t *testing.T) {
	for what, forget := range map[string]func(leader *changefeed.Record){
		"heartbeats":     func(r *changefeed.Record) { r.Seq -= 3 },
		"all leaders":    func(r *changefeed.Record) { r.Seq, r.Term, r.Leader, r.Session = 1, 0, "", "" },
		"a claim":        func(r *changefeed.Record) { r.Seq, r.Leader, r.Session, r.TTL = 4, "", "", 0 },
		"another leader": func(r *changefeed.Record) { r.Seq, r.Leader, r.Session = 4, "gone", "gone" },
	} {
		inBubble(t, func(a *arena) {
			a.join("one")
			a.join("two")
			a.leader()
			a.watch(20 * time.Second)
			last := a.record()
			old := last
			forget(&old)
			_, err := a.table.Store("election").Heartbeat(a.Context(), last, old)
			require.NoError(a, err)
			a.watch(20 * time.Second)
			require.NotNil(a, a.leading(), "after %s nobody leads any more", what)
			token := a.leading().Current().Leadership.Token()
			if old.Session == last.Session {
				require.Equal(a, int64(last.Term), token)
			} else {
				require.Greater(a, token, int64(last.Term))
			}
			a.join("late")
			a.watch(10 * time.Second)
			require.Equal(a, token, a.leading().Current().Leadership.Token())
		})
	}
}

// The record is lost: the leader stops at once, and nobody leads before every lease that
// there may be is over. Terms go on.
func TestRecordLoss(t *testing.T) {
	inBubble(t, func(a *arena) {
		a.join("one")
		a.join("two")
		leader := a.leader()
		l := leader.Current().Leadership
		begin := time.Now()
		a.table.Lose("election")
		synctest.Wait()
		require.ErrorIs(a, l.Err(), changefeed.ErrNoRecord)
		next := a.leader()
		require.GreaterOrEqual(a, time.Since(begin), 2*time.Second)
		require.Greater(a, next.Current().Leadership.Token(), l.Token())
		a.watch(10 * time.Second)
	})
}

// A record that was created again with a smaller term, by a program whose clock is behind, is
// raised by candidates that know of greater ones.
func TestRecordMadeByNewcomer(t *testing.T) {
	inBubble(t, func(a *arena) {
		a.make("creator")
		old := a.join("old", changefeed.WithoutCreate()) // makes nothing
		for range 3 {
			token := a.leader().Current().Leadership.Token()
			a.table.Lose("election")
			synctest.Wait()
			blank := changefeed.Record{Epoch: "0.behind", Seq: 1, TTL: 1750 * time.Millisecond}
			require.NoError(a, a.table.Store("election").Create(a.Context(), blank))
			require.Same(a, old, a.leader())
			require.Greater(a, old.Current().Leadership.Token(), token)
		}
	})
}

// The end of the election is learned of by one that was cut off meanwhile, even if there
// is another by then.
func TestRestartAfterTheEnd(t *testing.T) {
	inBubble(t, func(a *arena) {
		store := a.table.Store("election")
		require.ErrorIs(a, changefeed.RestartElection(store), leaderelection.ErrNoElection)
		one, two, far := a.join("one"), a.join("two"), a.join("far")
		token := a.leader().Current().Leadership.Token()
		heal := far.net.Cut()
		time.Sleep(2 * time.Second)
		require.ErrorIs(a, changefeed.RestartElection(store), changefeed.ErrNotEnded)
		require.NoError(a, changefeed.DeleteElection(store))
		require.NoError(a, changefeed.DeleteElection(store))
		require.ErrorIs(a, <-one.ended, leaderelection.ErrElectionOver)
		require.ErrorIs(a, <-two.ended, leaderelection.ErrElectionOver)
		require.ErrorIs(a, one.Elect(a.Context(), "two"), leaderelection.ErrElectionOver)
		require.NoError(a, changefeed.RestartElection(store))
		again := a.join("again")
		require.Same(a, again, a.leader())
		require.Greater(a, again.Current().Leadership.Token(), token)
		heal()
		require.ErrorIs(a, <-far.ended, leaderelection.ErrElectionOver)
	})
}

// DeleteElection where there is none keeps there from being one, unless it must not
// create anything.
func TestDeleteWhatIsNotThere(t *testing.T) {
	store := memory.NewTable().Store("election")
	require.NoError(t, changefeed.DeleteElection(store, changefeed.WithoutCreate()))
	_, err := store.Read(t.Context())
	require.ErrorIs(t, err, changefeed.ErrNoRecord)
	require.NoError(t, changefeed.DeleteElection(store))
	e, err := changefeed.NewElection(store)
	require.NoError(t, err)
	require.ErrorIs(t, e.ElectLeader(), leaderelection.ErrElectionOver)
	require.NoError(t, store.Close())
	require.ErrorIs(t, changefeed.DeleteElection(store), changefeed.ErrClosed)
	require.ErrorIs(t, changefeed.DeleteElection(nil), leaderelection.ErrNilConn)
}

func TestWithContext(t *testing.T) {
	inBubble(t, func(a *arena) {
		ctx, cancel := context.WithCancel(a.Context())
		p := a.join("one", changefeed.WithContext(ctx))
		require.Same(a, p, a.leader())
		l := p.Current().Leadership
		cancel()
		require.NoError(a, <-p.ended)
		require.ErrorIs(a, l.Err(), leaderelection.ErrResigned)
		require.Empty(a, a.record().Leader)
	})
}

// The deadline is the lease's, less the guard, counts from before the request was sent,
// and moves on with each heartbeat.
func TestDeadline(t *testing.T) {
	inBubble(t, func(a *arena) {
		p := a.make("one", changefeed.WithStopGuard(100*time.Millisecond))
		p.net.Set(changefeedtest.Faults{Delay: 200 * time.Millisecond})
		p.start()
		require.Same(a, p, a.leader())
		l := p.Current().Leadership
		lease := changefeed.Config(p.Election).Lease - 100*time.Millisecond
		require.Less(a, time.Until(l.Deadline()), lease) // the request took its time
		first := l.Deadline()
		a.watch(5 * time.Second)
		require.NoError(a, l.Err())
		require.Greater(a, l.Deadline().Sub(first), 3*time.Second)
		last := l.Deadline()
		p.net.Cut()
		<-l.Done()
		require.WithinDuration(a, l.Deadline(), time.Now(), time.Microsecond)
		require.GreaterOrEqual(a, l.Deadline(), last)
		require.NotEmpty(a, p.failed(leaderelection.EventChecked))
	})
}

// Events that are not received are dropped, the oldest first, and counted.
func TestMissedEvents(t *testing.T) {
	inBubble(t, func(a *arena) {
		p := a.make("one")
		events := p.Events()
		p.wg.Go(func() { p.ended <- p.ElectLeader() })
		p.net.Set(changefeedtest.Faults{FeedCut: 1})
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		p.mu.Lock()
		opened := p.opened
		p.mu.Unlock()
		require.NoError(a, p.Resign())
		var received []leaderelection.Event
		missed := 0
		for event := range events {
			received = append(received, event)
			missed += event.Missed
		}
		require.Len(a, received, 64)
		for _, event := range received[:63] {
			require.Equal(a, leaderelection.EventWatchFailed, event.Kind)
		}
		require.Equal(a, leaderelection.EventEnded, received[63].Kind)
		require.Equal(a, 1+opened+1-64, missed, "joined, failed feeds, ended")
	})
}

// After a restart of the election the last leader's lease is waited for: it may not have
// learned of the end.
func TestRestartWaitsForTheLease(t *testing.T) {
	inBubble(t, func(a *arena) {
		old := a.join("old")
		require.Same(a, old, a.leader())
		a.watch(time.Second)
		old.net.Cut()
		l := old.Current().Leadership
		store := a.table.Store("election")
		require.NoError(a, changefeed.DeleteElection(store))
		require.NoError(a, changefeed.RestartElection(store))
		require.NoError(a, l.Err())
		next := a.join("next")
		for !next.leads() {
			a.watch(time.Millisecond)
		}
		require.Error(a, l.Err())
	})
}

// A lease is over by the wall clock too: the monotonic one stands still while a machine is
// suspended. A follower's wait is measured by that alone. Real time: in a bubble there is
// no monotonic clock.
func TestSuspendedMachine(t *testing.T) {
	var by atomic.Int64
	begin := time.Now()
	e, err := changefeed.NewElection(memory.NewTable().Store("election"),
		changefeed.WithHeartbeat(100*time.Millisecond), changefeed.WithSuspension(&by))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- e.ElectLeader() }()
	lead := func() *leaderelection.Leadership {
		for status := range e.Status() {
			if status.Leadership != nil {
				return status.Leadership
			}
		}
		return nil
	}
	by.Add(int64(time.Hour)) // while it waits
	l := lead()
	require.GreaterOrEqual(t, time.Since(begin), 200*time.Millisecond)
	by.Add(int64(time.Hour)) // while it leads
	select {
	case <-l.Done():
	case <-time.After(5 * time.Second):
	}
	require.ErrorIs(t, l.Err(), leaderelection.ErrLeaseExpired)
	require.Greater(t, lead().Token(), l.Token())
	require.NoError(t, e.Resign())
	require.NoError(t, <-ended)
}
