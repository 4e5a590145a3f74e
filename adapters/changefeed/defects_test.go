package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/changefeedtest"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
)

// What is wrong in leaderfeed, by number, is not so here.

// One that is demoted while a heartbeat is on its way sends none after it.
func TestL1NoZombieHeartbeats(t *testing.T) {
	inBubble(t, func(a *arena) {
		first := a.join("first")
		a.leader()
		second := a.join("second")
		first.net.Set(changefeedtest.Faults{Delay: 400 * time.Millisecond})
		for sent := first.sent(); first.sent() == sent; { // until one is on its way
			time.Sleep(time.Millisecond)
		}
		require.NoError(a, second.Elect(a.Context(), "second"))
		for !second.leads() {
			a.watch(time.Millisecond)
		}
		time.Sleep(time.Second) // what is on its way
		sent := first.sent()
		a.watch(time.Minute)
		require.Equal(a, sent, first.sent(), "the demoted leader goes on to write")
		require.Same(a, second, a.leading())
	})
}

// Those who claim at one time have one leader, and always have one.
func TestL2ClaimsAtOneTime(t *testing.T) {
	inBubble(t, func(a *arena) {
		same := changefeed.WithRandom(func() float64 { return 0.5 })
		for i := range 5 {
			p := a.make(fmt.Sprint("candidate ", i), same)
			p.net.Set(changefeedtest.Faults{Delay: 40 * time.Millisecond})
			p.start()
		}
		leader := a.leader()
		a.watch(30 * time.Second)
		require.Same(a, leader, a.leading())
	})
}

// A leader whose writes hang stops, before anybody else leads.
func TestL3LeaderThatIsCutOffStops(t *testing.T) {
	inBubble(t, func(a *arena) {
		a.join("one")
		a.join("two")
		leader := a.leader()
		l := leader.Current().Leadership
		heal := leader.net.Cut()
		var ended time.Time
		for ; a.leading() == nil || a.leading() == leader; time.Sleep(time.Millisecond) {
			if ended.IsZero() && l.Err() != nil {
				ended = time.Now()
			}
		}
		require.ErrorIs(a, l.Err(), leaderelection.ErrLeaseExpired)
		require.False(a, ended.IsZero())
		require.GreaterOrEqual(a, time.Since(ended), 200*time.Millisecond) // κ·D - D
		heal()
		a.watch(10 * time.Second)
		require.False(a, leader.leads())
	})
}

// A leader whose feed breaks steps down, releases the record, writes nothing more, and
// stands again when it has a feed.
func TestL4FeedError(t *testing.T) {
	inBubble(t, func(a *arena) {
		leader := a.join("one")
		require.Same(a, leader, a.leader())
		other := a.join("two")
		leader.net.Set(changefeedtest.Faults{FeedCut: 1})
		begin := time.Now()
		require.NoError(a, other.Elect(a.Context(), "one")) // nothing to do
		for !other.leads() {
			a.watch(time.Millisecond)
		}
		require.Less(a, time.Since(begin), 1100*time.Millisecond) // the next heartbeat, and no wait
		sent := leader.sent()
		a.watch(20 * time.Second)
		require.Equal(a, sent, leader.sent())
		require.Greater(a, len(leader.received(leaderelection.EventWatchFailed)), 5)
		require.Equal(a, changefeedtest.ErrInjected, leader.received(leaderelection.EventWatchFailed)[0].Err)

		leader.net.Set(changefeedtest.Faults{})
		a.watch(2 * time.Second)
		require.NoError(a, other.Resign())
		synctest.Wait()
		require.Same(a, leader, a.leading())
	})
}

// The same with WithKeepLeading: it leads on, and a record that is taken is noticed.
func TestKeepLeading(t *testing.T) {
	inBubble(t, func(a *arena) {
		leader := a.join("one", changefeed.WithKeepLeading())
		require.Same(a, leader, a.leader())
		l := leader.Current().Leadership
		leader.net.Set(changefeedtest.Faults{FeedCut: 1})
		a.join("two")
		a.watch(20 * time.Second)
		require.NoError(a, l.Err())
		require.NotEmpty(a, leader.received(leaderelection.EventWatchFailed))
		require.NoError(a, a.all[1].Elect(a.Context(), "two"))
		a.watch(2 * time.Second)
		require.ErrorIs(a, l.Err(), changefeed.ErrStepDown)
		require.Same(a, a.all[1], a.leading())
	})
}

// Whom the record names leads only if it has claimed it: neither another with that ID,
// nor a nominee, nor a sole candidate that is nominated does without heartbeats.
func TestL5NamedIsNotLeading(t *testing.T) {
	inBubble(t, func(a *arena) {
		store := a.table.Store("election")
		require.NoError(a, store.Create(a.Context(), changefeed.Record{Epoch: "0.x", Seq: 1, TTL: time.Second}))
		held := a.record()
		held.Leader, held.Session, held.Term, held.Seq = "me", "another's", 1, 2
		_, err := store.Heartbeat(a.Context(), a.record(), held)
		require.NoError(a, err)
		me := a.join("me")
		require.False(a, me.leads())
		require.NoError(a, me.Elect(a.Context(), "me"))
		require.False(a, me.leads())
		require.Same(a, me, a.leader()) // after it has waited
		require.EqualValues(a, 2, me.Current().Leadership.Token())
		sent := me.sent()
		a.watch(10 * time.Second)
		require.GreaterOrEqual(a, me.sent(), sent+9)
	})
}

// Elect has the one lead that it names, by whomever it is called.
func TestElect(t *testing.T) {
	inBubble(t, func(a *arena) {
		for _, id := range []string{"one", "two", "three"} {
			a.join(id)
		}
		a.leader()
		for i := range 9 {
			by, next := a.all[i%3], a.all[(i/3+i)%3]
			begin := time.Now()
			require.NoError(a, by.Elect(a.Context(), next.id))
			synctest.Wait()
			require.Same(a, next, a.leading())
			require.Zero(a, time.Since(begin))
		}
		require.ErrorIs(a, a.all[0].Elect(a.Context(), ""), leaderelection.ErrInvalidOption)
		require.NoError(a, a.all[0].Elect(a.Context(), "nobody"))
		synctest.Wait()
		require.Nil(a, a.leading())
		a.leader() // after the time that a nominee has
	})
}

// A candidate nominates itself, by its random ID, at any time: before it takes part, while it
// follows, while it leads, and after its candidacy.
func TestElectItself(t *testing.T) {
	inBubble(t, func(a *arena) {
		newcomer := func() *party {
			p := &party{a: a, net: changefeedtest.New(a.table.Store("election"), 1), ended: make(chan error, 1)}
			p.Store = p.net
			var err error
			p.Election, err = changefeed.NewElection(p)
			require.NoError(a, err)
			a.all = append(a.all, p)
			p.id = p.ID()
			require.NotEmpty(a, p.id)
			return p
		}
		first := newcomer()
		first.start()
		require.Same(a, first, a.leader())
		second := newcomer()
		require.NoError(a, second.Elect(a.Context(), second.ID()), "before it takes part")
		second.start()
		synctest.Wait()
		require.Same(a, second, a.leading())
		require.Equal(a, second.id, second.ID())
		require.Equal(a, second.id, second.Current().CandidateID)
		require.NoError(a, first.Elect(a.Context(), first.ID()), "while it follows")
		synctest.Wait()
		require.Same(a, first, a.leading())
		token := first.Current().Leadership.Token()
		require.NoError(a, first.Elect(a.Context(), first.ID()), "while it leads")
		synctest.Wait()
		require.Equal(a, token, first.Current().Leadership.Token())
		require.NoError(a, first.Resign())
		require.NoError(a, first.Elect(a.Context(), first.ID()), "after its candidacy")
		require.Same(a, second, a.leader())
	})
}

// The creator of a record is not its leader, what is old is no heartbeat, and the time is
// the store's.
func TestL6FirstRun(t *testing.T) {
	inBubble(t, func(a *arena) {
		begin := time.Now()
		one := a.join("one")
		require.Empty(a, a.record().Leader)
		require.Same(a, one, a.leader())
		require.GreaterOrEqual(a, time.Since(begin), 2*time.Second)
		require.WithinDuration(a, time.Now(), a.record().Time, time.Second)

		one.net.Cut() // it is gone, and what it wrote stays
		time.Sleep(time.Hour)
		begin = time.Now()
		two := a.join("two")
		require.Same(a, two, a.leader())
		require.GreaterOrEqual(a, time.Since(begin), 2*time.Second)
		require.LessOrEqual(a, time.Since(begin), 4*time.Second)
	})
}

// One that has resigned is no leader, has released the record, and never writes again.
func TestL7Resigned(t *testing.T) {
	inBubble(t, func(a *arena) {
		one, two := a.join("one"), a.join("two")
		leader := a.leader()
		other := map[*party]*party{one: two, two: one}[leader]
		require.NoError(a, leader.Resign())
		require.Equal(a, leaderelection.Follower, leader.Current().Role)
		synctest.Wait()
		require.Same(a, other, a.leading())
		require.Zero(a, leader.openFeeds())
		require.NoError(a, other.Resign())
		require.True(a, a.record().Leader == "" && a.record().TTL == 0)
		sent := leader.sent()
		time.Sleep(time.Hour)
		require.Equal(a, sent, leader.sent())
		require.Nil(a, a.leading())
		require.NoError(a, <-leader.ended)
	})
}

// A start that fails leaves nothing behind, and can be repeated.
func TestL8FailedStart(t *testing.T) {
	inBubble(t, func(a *arena) {
		net := changefeedtest.New(a.table.Store("election"), 1)
		net.Set(changefeedtest.Faults{Before: 1})
		_, err := changefeed.NewElection(net)
		require.ErrorIs(a, err, changefeedtest.ErrInjected)
		heal := net.Cut()
		begin := time.Now()
		_, err = changefeed.NewElection(net)
		require.ErrorIs(a, err, leaderelection.ErrUnreachable)
		require.LessOrEqual(a, time.Since(begin), 11*time.Second)
		heal()
		net.Set(changefeedtest.Faults{})
		e, err := changefeed.NewElection(net)
		require.NoError(a, err)
		require.NoError(a, e.Resign())
		require.NoError(a, net.Close())
	})
}

// A program that takes part again and again has one feed at a time.
func TestL9OneFeed(t *testing.T) {
	inBubble(t, func(a *arena) {
		for range 5 {
			p := a.join("one")
			require.Same(a, p, a.leader())
			require.Equal(a, 1, p.openFeeds())
			require.NoError(a, p.Resign())
			p.wg.Wait()
			require.Zero(a, p.openFeeds())
		}
	})
}

// Options can be used twice.
func TestL10OptionsAreNotChanged(t *testing.T) {
	opts := []changefeed.Option{
		changefeed.WithHeartbeat(50 * time.Millisecond), changefeed.WithElectionTimeout(300*time.Millisecond, 900*time.Millisecond),
	}
	for range 2 {
		e, err := changefeed.NewElection(memory.NewTable().Store("election"), opts...)
		require.NoError(t, err)
		cfg := changefeed.Config(e)
		require.Equal(t, 50*time.Millisecond, cfg.Heartbeat)
		require.Equal(t, 300*time.Millisecond, cfg.ElectionMin)
		require.Equal(t, 900*time.Millisecond, cfg.ElectionMax)
		require.NoError(t, e.Resign())
	}
}

// A new leader is reported: the first one, the candidate itself, and the next one.
func TestL11NewLeader(t *testing.T) {
	inBubble(t, func(a *arena) {
		one := a.join("one")
		require.Same(a, one, a.leader())
		two := a.join("two")
		require.NoError(a, one.Resign())
		synctest.Wait()
		require.Same(a, two, a.leading())
		token := two.Current().Leadership.Token()
		newLeader := func(id, leader string, token int64) leaderelection.Event {
			return leaderelection.Event{Kind: leaderelection.EventNewLeader, ID: id, Subject: leader, Token: token}
		}
		require.Equal(a, []leaderelection.Event{newLeader("one", "one", token-1)}, one.received(leaderelection.EventNewLeader))
		require.Equal(a, []leaderelection.Event{newLeader("two", "one", token-1), newLeader("two", "two", token)}, two.received(leaderelection.EventNewLeader))
		require.Len(a, two.received(leaderelection.EventWatched), 1)
	})
}

// Heartbeats are reported by the leader, which also reports its checks, and by a follower.
func TestHeartbeatEvents(t *testing.T) {
	inBubble(t, func(a *arena) {
		one := a.join("one")
		require.Same(a, one, a.leader())
		two := a.join("two")
		time.Sleep(10*time.Second + time.Millisecond)
		want := leaderelection.Event{Kind: leaderelection.EventHeartbeat, Subject: "one", Token: one.Current().Leadership.Token()}
		for _, p := range []*party{one, two} {
			beats := p.received(leaderelection.EventHeartbeat)
			require.InDelta(a, 10, len(beats), 1)
			want.ID = p.ID()
			require.Equal(a, want, beats[0])
		}
		require.InDelta(a, 10, len(one.received(leaderelection.EventChecked)), 1)
		require.Empty(a, one.failed(leaderelection.EventChecked))
		require.Empty(a, two.received(leaderelection.EventChecked))
	})
}

// A feed of any place is there where the store has it.
func TestChangesOfPlace(t *testing.T) {
	inBubble(t, func(a *arena) {
		p := a.make("one")
		_, err := p.Election.Changes(a.Context(), "another")
		require.ErrorIs(a, err, errors.ErrUnsupported)
		e, err := changefeed.NewElection(places{a.table.Store("election")})
		require.NoError(a, err)
		_, err = e.Changes(a.Context(), "another")
		require.EqualError(a, err, "changes of another")
		require.NoError(a, e.Resign())
	})
}

// places is a store that says which place it was asked for.
type places struct{ changefeed.Store }

func (places) Changes(_ context.Context, name string) (changefeed.Changes, error) {
	return nil, errors.New("changes of " + name)
}

// What is not to be created must be there, and then all works as ever.
func TestL12WithoutCreate(t *testing.T) {
	inBubble(t, func(a *arena) {
		_, err := changefeed.NewElection(a.table.Store("election"), changefeed.WithoutCreate())
		require.ErrorIs(a, err, leaderelection.ErrNoElection)
		require.NoError(a, a.make("creator").Resign())
		p := a.join("one", changefeed.WithoutCreate())
		require.Same(a, p, a.leader())
		require.NoError(a, p.Resign())
	})
}

// Changes of other data that were missed are not passed over in silence.
func TestL13Changes(t *testing.T) {
	table := memory.NewTable()
	e, err := changefeed.NewElection(table.Store("election"))
	require.NoError(t, err)
	changes, err := e.Changes(t.Context(), "")
	require.NoError(t, err)
	defer changes.Close()
	for i := range 2000 {
		table.Put("key", i)
	}
	for i := range 1000 {
		c, err := changes.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, memory.Change{Key: "key", Value: i}, c)
	}
	_, err = changes.Next(t.Context())
	require.ErrorIs(t, err, changefeed.ErrMissed)

	e, err = changefeed.NewElection(changefeedtest.New(table.Store("election"), 1))
	require.NoError(t, err)
	_, err = e.Changes(t.Context(), "")
	require.ErrorIs(t, err, errors.ErrUnsupported)
}
