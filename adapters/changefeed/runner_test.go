package changefeed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
	"github.com/go-leaderelection/leaderelection/event"
)

// TestElection_CreatorWaitsBeforeItLeads checks that the creator of a record waits before it becomes the
// leader, that the candidate does not take an old record for a heartbeat, and that the store sets the time
// of the record.
func TestElection_CreatorWaitsBeforeItLeads(t *testing.T) {
	runInBubble(t, func(h *harness) {
		begin := time.Now()
		one := h.join("one")
		require.Empty(h, h.record().Leader)
		require.Same(h, one, h.awaitLeader())
		require.GreaterOrEqual(h, time.Since(begin), 2*time.Second)
		require.WithinDuration(h, time.Now(), h.record().Time, time.Second)

		one.network.Cut()
		time.Sleep(time.Hour)
		begin = time.Now()
		h.joinAndLead("two")
		require.GreaterOrEqual(h, time.Since(begin), 2*time.Second)
		require.LessOrEqual(h, time.Since(begin), 4*time.Second)
	})
}

// TestElection_HasOneLeaderAfterConcurrentClaims checks that only one of several candidates becomes the leader if
// they claim the record at the same time.
func TestElection_HasOneLeaderAfterConcurrentClaims(t *testing.T) {
	runInBubble(t, func(h *harness) {
		sameTime := changefeed.WithRandom(func() float64 { return 0.5 })
		for i := range 5 {
			c := h.newCandidate(fmt.Sprint("candidate ", i), sameTime)
			c.network.Set(storetest.Faults{Delay: 40 * time.Millisecond})
			c.start()
		}
		leader := h.awaitLeader()
		h.passTime(30 * time.Second)
		require.Same(h, leader, h.leader())
	})
}

// TestElection_DemotedLeaderStopsWriting checks that a leader that is demoted while a heartbeat is in flight
// stops writing.
func TestElection_DemotedLeaderStopsWriting(t *testing.T) {
	runInBubble(t, func(h *harness) {
		first := h.join("first")
		h.awaitLeader()
		second := h.join("second")
		first.network.Set(storetest.Faults{Delay: 400 * time.Millisecond})
		for writes := first.countWrites(); first.countWrites() == writes; { // wait until a heartbeat is in flight
			time.Sleep(time.Millisecond)
		}
		h.transfer(second)
		time.Sleep(time.Second) // wait until no request is in flight
		writes := first.countWrites()
		h.passTime(time.Minute)
		require.Equal(h, writes, first.countWrites())
		require.Same(h, second, h.leader())
	})
}

// TestElection_PartitionedLeaderStopsBeforeNextLeads checks that a leader whose writes are not answered has
// stopped when another candidate becomes the leader.
func TestElection_PartitionedLeaderStopsBeforeNextLeads(t *testing.T) {
	runInBubble(t, func(h *harness) {
		h.join("one")
		h.join("two")
		leader := h.awaitLeader()
		l := leader.Current().Leadership
		heal := leader.network.Cut()
		var ended time.Time
		for ; h.leader() == nil || h.leader() == leader; time.Sleep(time.Millisecond) {
			if ended.IsZero() && l.Err() != nil {
				ended = time.Now()
			}
		}
		require.ErrorIs(h, l.Err(), leaderelection.ErrLeaseExpired)
		require.False(h, ended.IsZero())
		require.GreaterOrEqual(h, time.Since(ended), 200*time.Millisecond) // κ·D - D, with the lease D: the margin for clock drift
		heal()
		h.passTime(10 * time.Second)
		require.False(h, leader.isLeader())
	})
}

// TestElection_LeaderContinuesIfFeedIsReplaced checks that a leadership continues when each of its feeds that fails
// is replaced within the lease.
func TestElection_LeaderContinuesIfFeedIsReplaced(t *testing.T) {
	runInBubble(t, func(h *harness) {
		leader := h.joinAndLead("one")
		l := leader.Current().Leadership
		for range 10 {
			leader.network.Set(storetest.Faults{FeedCut: 1})
			h.passTime(time.Second)
			leader.network.Set(storetest.Faults{})
			h.passTime(time.Second)
		}
		require.NoError(h, l.Err())
		require.GreaterOrEqual(h, len(leader.eventsOf(event.WatchFailed)), 10)
	})
}

// TestElection_LeaderWithoutFeedReleasesRecord checks that a leader whose feed does not return within the
// lease releases the record immediately and stops writing, that the error of the leadership contains the
// error of the feed, and that the candidate contends again when its feed works.
func TestElection_LeaderWithoutFeedReleasesRecord(t *testing.T) {
	runInBubble(t, func(h *harness) {
		leader := h.joinAndLead("one")
		other := h.join("two")
		leader.network.Set(storetest.Faults{FeedCut: 1})
		l := leader.Current().Leadership
		begin := time.Now()
		h.transfer(leader) // must change nothing, because the record names this leader already
		h.passUntil(other.isLeader)
		require.Less(h, time.Since(begin), 2850*time.Millisecond, "longer than a heartbeat and a lease")
		require.ErrorIs(h, l.Err(), changefeed.ErrFeedLost)
		require.ErrorContains(h, l.Err(), storetest.ErrInjected.Error())
		writes := leader.countWrites()
		h.passTime(20 * time.Second)
		require.Equal(h, writes, leader.countWrites())
		failures := leader.eventsOf(event.WatchFailed)
		require.Greater(h, len(failures), 5)
		require.Equal(h, storetest.ErrInjected, failures[0].Err)

		leader.network.Set(storetest.Faults{})
		h.passTime(2 * time.Second)
		require.NoError(h, other.Resign())
		synctest.Wait()
		require.Same(h, leader, h.leader())
	})
}

// TestWithKeepLeading_LeaderContinuesWithoutFeed checks that a leader with WithKeepLeading continues when its feed
// fails, and stops when another candidate has claimed the record.
func TestWithKeepLeading_LeaderContinuesWithoutFeed(t *testing.T) {
	runInBubble(t, func(h *harness) {
		leader := h.joinAndLead("one", changefeed.WithKeepLeading())
		l := leader.Current().Leadership
		leader.network.Set(storetest.Faults{FeedCut: 1})
		other := h.join("two")
		h.passTime(20 * time.Second)
		require.NoError(h, l.Err())
		require.NotEmpty(h, leader.eventsOf(event.WatchFailed))
		h.transfer(other)
		require.ErrorIs(h, l.Err(), changefeed.ErrStepDown)
		require.Same(h, other, h.leader())
	})
}

// TestElection_SilentFeedIsReplaced checks that a candidate opens another feed when its feed delivers
// nothing.
func TestElection_SilentFeedIsReplaced(t *testing.T) {
	runInBubble(t, func(h *harness) {
		leader := h.joinAndLead("leader")
		follower := h.newCandidate("follower")
		follower.network.Set(storetest.Faults{FeedSilence: 1})
		follower.start()
		h.passTime(20 * time.Second)
		require.Same(h, leader, h.leader())
		failures := follower.eventsOf(event.WatchFailed)
		require.NotEmpty(h, failures)
		require.ErrorIs(h, failures[0].Err, changefeed.ErrStale)
		follower.network.Set(storetest.Faults{})
		h.passTime(5 * time.Second)
		require.Equal(h, "leader", follower.Current().NowFollowing)
	})
}

// TestElection_OnlyOneFeedIsOpen checks that a program that starts one candidacy after the other has only one
// open feed.
func TestElection_OnlyOneFeedIsOpen(t *testing.T) {
	runInBubble(t, func(h *harness) {
		for range 5 {
			c := h.joinAndLead("one")
			open, _ := c.countFeeds()
			require.Equal(h, 1, open)
			require.NoError(h, c.Resign())
			c.running.Wait()
			open, _ = c.countFeeds()
			require.Zero(h, open)
		}
	})
}

// TestElection_CandidateDoesNotLeadWithoutClaim checks that a candidate is not the leader merely because
// the record contains its ID, as leader or as transfer target, when it has not claimed the record.
func TestElection_CandidateDoesNotLeadWithoutClaim(t *testing.T) {
	runInBubble(t, func(h *harness) {
		store := h.table.Store("election")
		require.NoError(h, store.Create(h.Context(), changefeed.Record{Epoch: "0.x", Seq: 1, TTL: time.Second}))
		held := h.record()
		held.Leader, held.Session, held.Term, held.Seq = "me", "another's", 1, 2
		h.replaceRecord(held)
		me := h.join("me")
		require.False(h, me.isLeader())
		h.transfer(me) // returns at once, because the record names "me" as leader
		require.False(h, me.isLeader())
		require.Same(h, me, h.awaitLeader()) // me leads after the wait
		require.EqualValues(h, 2, me.token())
		writes := me.countWrites()
		h.passTime(10 * time.Second)
		require.GreaterOrEqual(h, me.countWrites(), writes+9, "the leader sends no heartbeats")
	})
}

// TestElection_ReportsLeaders checks that a candidate reports the first leader, itself and the next leader.
func TestElection_ReportsLeaders(t *testing.T) {
	runInBubble(t, func(h *harness) {
		one := h.joinAndLead("one")
		two := h.join("two")
		require.NoError(h, one.Resign())
		synctest.Wait()
		require.Same(h, two, h.leader())
		token := two.token()
		newLeader := func(id, leader string, token int64) event.Event {
			return event.Event{Kind: event.NewLeader, ID: id, Subject: leader, Token: token}
		}
		require.Equal(h, []event.Event{newLeader("one", "one", token-1)}, one.eventsOf(event.NewLeader))
		require.Equal(h, []event.Event{newLeader("two", "one", token-1), newLeader("two", "two", token)}, two.eventsOf(event.NewLeader))
		require.Len(h, two.eventsOf(event.Watched), 1)
	})
}

// TestElection_ReportsHeartbeats checks that the leader and the followers report heartbeats, and that only
// the leader reports event.Checked.
func TestElection_ReportsHeartbeats(t *testing.T) {
	runInBubble(t, func(h *harness) {
		one := h.joinAndLead("one")
		two := h.join("two")
		time.Sleep(10*time.Second + time.Millisecond)
		want := event.Event{Kind: event.Heartbeat, Subject: "one", Token: one.token()}
		for _, c := range []*candidate{one, two} {
			heartbeats := c.eventsOf(event.Heartbeat)
			require.InDelta(h, 10, len(heartbeats), 1)
			want.ID = c.id
			require.Equal(h, want, heartbeats[0])
		}
		require.InDelta(h, 10, len(one.eventsOf(event.Checked)), 1)
		require.Empty(h, one.failuresOf(event.Checked))
		require.Empty(h, two.eventsOf(event.Checked))
	})
}

// TestElection_OldestUnreadEventsAreDropped checks that only the oldest unread events are dropped, and that
// the number of dropped events is right.
func TestElection_OldestUnreadEventsAreDropped(t *testing.T) {
	runInBubble(t, func(h *harness) {
		c := h.newCandidate("one")
		events := c.Events()
		c.running.Go(func() { c.ended <- c.ElectLeader() })
		c.network.Set(storetest.Faults{FeedCut: 1})
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		_, started := c.countFeeds()
		require.NoError(h, c.Resign())
		var received []event.Event
		missed := 0
		for e := range events {
			received = append(received, e)
			missed += e.Missed
		}
		require.Len(h, received, 64)
		for _, e := range received[:63] {
			require.Equal(h, event.WatchFailed, e.Kind)
		}
		require.Equal(h, event.Ended, received[63].Kind)
		require.Equal(h, 1+started+1-64, missed, "joined, failed feeds, ended")
	})
}

// TestElection_DeadlineLeavesSafetyMargin checks that the deadline leaves the safety margin, is measured from
// before the request, and moves with each heartbeat.
func TestElection_DeadlineLeavesSafetyMargin(t *testing.T) {
	runInBubble(t, func(h *harness) {
		c := h.newCandidate("one", changefeed.WithStopGuard(100*time.Millisecond))
		c.network.Set(storetest.Faults{Delay: 200 * time.Millisecond})
		c.start()
		require.Same(h, c, h.awaitLeader())
		l := c.Current().Leadership
		lease := changefeed.Config(c.Election).Lease - 100*time.Millisecond
		require.Less(h, time.Until(l.Deadline()), lease, "the duration of the request does not count")
		first := l.Deadline()
		h.passTime(5 * time.Second)
		require.NoError(h, l.Err())
		require.Greater(h, l.Deadline().Sub(first), 3*time.Second)
		last := l.Deadline()
		c.network.Cut()
		<-l.Done()
		require.WithinDuration(h, l.Deadline(), time.Now(), time.Microsecond)
		require.GreaterOrEqual(h, l.Deadline(), last)
		require.NotEmpty(h, c.failuresOf(event.Checked))
	})
}

// TestElection_LeadershipEndsWhileMachineIsSuspended checks that a leadership ends when the wall clock reaches its
// deadline, because the monotonic clock stops while a machine is suspended. The wait of a follower, however, must be
// measured by the monotonic clock alone. The test runs in real time, because a bubble has no monotonic clock.
func TestElection_LeadershipEndsWhileMachineIsSuspended(t *testing.T) {
	var suspension atomic.Int64
	begin := time.Now()
	e, err := changefeed.NewElection(memory.NewTable().Store("election"),
		changefeed.WithHeartbeat(100*time.Millisecond), changefeed.WithSuspension(&suspension))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- e.ElectLeader() }()
	nextLeadership := func() *leaderelection.Leadership {
		for status := range e.Status() {
			if status.Leadership != nil {
				return status.Leadership
			}
		}
		return nil
	}
	<-e.Status()                     // The candidate is a follower now.
	suspension.Add(int64(time.Hour)) // The machine is suspended while the candidate waits.
	l := nextLeadership()
	require.GreaterOrEqual(t, time.Since(begin), 200*time.Millisecond)
	suspension.Add(int64(time.Hour)) // The machine is suspended while the candidate is leader.
	select {
	case <-l.Done():
	case <-time.After(5 * time.Second):
	}
	require.ErrorIs(t, l.Err(), leaderelection.ErrLeaseExpired)
	require.Greater(t, nextLeadership().Token(), l.Token())
	require.NoError(t, e.Resign())
	require.NoError(t, <-ended)
}

// TestElection_LostRecordEndsLeadership checks that the leader stops immediately when the record is deleted,
// that no other candidate becomes leader before all possible leases have expired, and that terms increase.
func TestElection_LostRecordEndsLeadership(t *testing.T) {
	runInBubble(t, func(h *harness) {
		h.join("one")
		h.join("two")
		l := h.awaitLeader().Current().Leadership
		begin := time.Now()
		h.table.Lose("election")
		synctest.Wait()
		require.ErrorIs(h, l.Err(), changefeed.ErrNoRecord)
		next := h.awaitLeader()
		require.GreaterOrEqual(h, time.Since(begin), 2*time.Second)
		require.Greater(h, next.token(), l.Token())
		h.passTime(10 * time.Second)
	})
}

// TestElection_TokensIncreaseDespiteSmallerTerm checks that tokens do not decrease when the record was
// created again by a program whose wall clock is behind.
func TestElection_TokensIncreaseDespiteSmallerTerm(t *testing.T) {
	runInBubble(t, func(h *harness) {
		h.newCandidate("creator")
		c := h.join("one", changefeed.WithoutCreate())
		for range 3 {
			token := h.awaitLeader().token()
			h.table.Lose("election")
			synctest.Wait()
			blank := changefeed.Record{Epoch: "0.behind", Seq: 1, TTL: 1750 * time.Millisecond}
			require.NoError(h, h.table.Store("election").Create(h.Context(), blank))
			require.Same(h, c, h.awaitLeader())
			require.Greater(h, c.token(), token)
		}
	})
}

// TestElection_TokensIncreaseAfterRecordIsLost checks that tokens increase after a loss of the record: with a
// candidate that knows the last token, without such a candidate, and in an ended election.
func TestElection_TokensIncreaseAfterRecordIsLost(t *testing.T) {
	runInBubble(t, func(h *harness) {
		last := int64(0)
		requireGreater := func(when string) {
			h.Helper()
			token := h.awaitLeader().token()
			require.Greater(h, token, last, when)
			last = token
		}
		one := h.join("one")
		requireGreater("at first")
		h.table.Lose("election")
		synctest.Wait()
		requireGreater("after a loss with a remaining candidate")
		require.NoError(h, one.Resign())
		h.table.Lose("election")
		two := h.join("two")
		requireGreater("after a loss without a remaining candidate")
		require.NoError(h, two.Resign())
		h.table.Lose("election")
		// DeleteElection creates the record, marked as ended.
		require.NoError(h, changefeed.DeleteElection(h.table.Store("election")))
		require.NoError(h, changefeed.RestartElection(h.table.Store("election")))
		three := h.join("three")
		requireGreater("after a loss, the end and a restart")
		require.NoError(h, three.EndElection())
		require.NoError(h, changefeed.RestartElection(h.table.Store("election")))
		h.join("four")
		requireGreater("after another restart")
	})
}

// TestElection_HasLeaderAfterStoreIsRestored checks that there is a leader with a greater token after the store
// has returned to an older state, by a failover or from a backup.
func TestElection_HasLeaderAfterStoreIsRestored(t *testing.T) {
	for lost, restore := range map[string]func(leader *changefeed.Record){
		"heartbeats":     func(r *changefeed.Record) { r.Seq -= 3 },
		"all leaders":    func(r *changefeed.Record) { r.Seq, r.Term, r.Leader, r.Session = 1, 0, "", "" },
		"a claim":        func(r *changefeed.Record) { r.Seq, r.Leader, r.Session, r.TTL = 4, "", "", 0 },
		"another leader": func(r *changefeed.Record) { r.Seq, r.Leader, r.Session = 4, "gone", "gone" },
	} {
		runInBubble(t, func(h *harness) {
			h.join("one")
			h.join("two")
			h.awaitLeader()
			h.passTime(20 * time.Second)
			last := h.record()
			old := last
			restore(&old)
			h.replaceRecord(old)
			h.passTime(20 * time.Second)
			require.NotNil(h, h.leader(), "lost: %s", lost)
			token := h.leader().token()
			if old.Session == last.Session {
				require.Equal(h, int64(last.Term), token)
			} else {
				require.Greater(h, token, int64(last.Term))
			}
			h.join("late")
			h.passTime(10 * time.Second)
			require.Equal(h, token, h.leader().token())
		})
	}
}

// TestElection_DamagedRecordEndsLeadership checks that a damaged record ends the leadership but not the
// candidacy, and that there is a leader after the record was repaired.
func TestElection_DamagedRecordEndsLeadership(t *testing.T) {
	runInBubble(t, func(h *harness) {
		c := h.joinAndLead("one")
		l := c.Current().Leadership
		good := h.record()
		bad := good
		bad.Epoch, bad.Seq = "", bad.Seq+1
		h.replaceRecord(bad)
		time.Sleep(time.Minute)
		require.Error(h, l.Err())
		require.Nil(h, h.leader())
		require.NoError(h, c.Current().Err)
		failures := c.eventsOf(event.WatchFailed)
		require.ErrorIs(h, failures[0].Err, changefeed.ErrUnsuitable)
		require.Less(h, len(failures), 70, "more than one feed is opened per heartbeat")
		good.Seq = bad.Seq + 1
		h.replaceRecord(good)
		require.Same(h, c, h.awaitLeader())
	})
}

// TestElection_GreatestTermEndsCandidacy checks that a record with the greatest possible term ends the
// candidacy, and that the candidate does not write the record.
func TestElection_GreatestTermEndsCandidacy(t *testing.T) {
	runInBubble(t, func(h *harness) {
		last := changefeed.Record{Epoch: "0.x", Seq: 1, TTL: time.Second, Term: 1<<53 - 1}
		require.NoError(h, h.table.Store("election").Create(h.Context(), last))
		c := h.join("one")
		err := <-c.ended
		require.ErrorIs(h, err, changefeed.ErrUnsuitable)
		require.ErrorContains(h, err, "is the last")
		require.NotErrorIs(h, err, leaderelection.ErrElectionOver)
		require.Equal(h, last.Seq, h.record().Seq, "the record was written")
	})
}

// rejectingStore is a store that rejects reads and writes while err returns an error.
func rejectingStore(s changefeed.Store, err func() error) *storeFuncs {
	return &storeFuncs{
		Store: s,
		read: func(ctx context.Context) (changefeed.Record, error) {
			if err := err(); err != nil {
				return changefeed.Record{}, err
			}
			return s.Read(ctx)
		},
		heartbeat: func(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
			if err := err(); err != nil {
				return changefeed.Record{}, err
			}
			return s.Heartbeat(ctx, prev, next)
		},
	}
}

// TestElection_RejectedRequestsAreRetried checks that a store that rejects requests for some time does not end the
// candidacy, that the rejections are reported, and that requests are retried at a low rate.
func TestElection_RejectedRequestsAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rejects atomic.Bool
		var requests atomic.Int64
		e, err := changefeed.NewElection(rejectingStore(memory.NewTable().Store("election"), func() error {
			requests.Add(1)
			if rejects.Load() {
				return fmt.Errorf("%w: %w", changefeed.ErrUnsuitable, leaderelection.ErrPermission)
			}
			return nil
		}))
		require.NoError(t, err)
		ended, events := make(chan error, 1), e.Events()
		go func() { ended <- e.ElectLeader() }()
		rejections, counted := map[event.Kind]int{}, make(chan struct{})
		go func() {
			defer close(counted)
			for e := range events {
				if e.Err != nil && e.Kind != event.Lost && e.Kind != event.Ended {
					require.ErrorIs(t, e.Err, changefeed.ErrUnsuitable)
					rejections[e.Kind]++
				}
			}
		}()
		time.Sleep(10 * time.Second)
		l := e.Current().Leadership
		require.NoError(t, l.Err())
		before := requests.Load()
		rejects.Store(true)
		time.Sleep(2 * time.Minute)
		require.ErrorIs(t, l.Err(), leaderelection.ErrLeaseExpired)
		require.Equal(t, leaderelection.Follower, e.Current().Role)
		require.NoError(t, e.Current().Err)
		require.Less(t, requests.Load()-before, int64(150), "requests in 120 heartbeats")
		rejects.Store(false)
		time.Sleep(10 * time.Second)
		require.Greater(t, e.Current().Leadership.Token(), l.Token())
		require.NoError(t, e.Resign())
		require.NoError(t, <-ended)
		<-counted
		require.Positive(t, rejections[event.Checked])
		require.Positive(t, rejections[event.RequestRejected])
	})
}

// TestElection_LogsWhyCandidateDoesNotLead checks that the log contains why a candidate does not lead.
func TestElection_LogsWhyCandidateDoesNotLead(t *testing.T) {
	errFull := errors.New("maximum bytes exceeded")
	for request, fail := range map[string]func(h *harness, s *storeFuncs){
		"create": func(h *harness, s *storeFuncs) {
			s.create = func(context.Context, changefeed.Record) error { return errFull }
			h.table.Lose("election")
		},
		"claim": func(_ *harness, s *storeFuncs) {
			s.heartbeat = func(context.Context, changefeed.Record, changefeed.Record) (changefeed.Record, error) {
				return changefeed.Record{}, errFull
			}
		},
	} {
		t.Run(request, func(t *testing.T) {
			runInBubble(t, func(h *harness) {
				var log bytes.Buffer
				c := h.newCandidate("one", changefeed.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				s := &storeFuncs{Store: c.store.Store}
				fail(h, s)
				c.store.Store = s
				c.start()
				h.passTime(10 * time.Second)
				_ = c.Resign()
				<-c.ended
				require.Contains(t, log.String(), fmt.Sprintf("request=%s err=%q", request, errFull))
			})
		})
	}
}

// TestElection_ClosedConnectionEndsCandidacy checks that a candidacy ends when the connection of its store was
// closed, because the store cannot open another connection.
func TestElection_ClosedConnectionEndsCandidacy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Bool
		e, err := changefeed.NewElection(rejectingStore(memory.NewTable().Store("election"), func() error {
			if closed.Load() {
				return fmt.Errorf("%w: %w", changefeed.ErrUnsuitable, leaderelection.ErrConnClosed)
			}
			return nil
		}))
		require.NoError(t, err)
		l, ended := startLeader(t, e)
		time.Sleep(5 * time.Second)
		closed.Store(true)
		time.Sleep(10 * time.Second)
		require.NotEmpty(t, ended)
		require.ErrorIs(t, <-ended, leaderelection.ErrConnClosed)
		require.ErrorIs(t, l.Err(), leaderelection.ErrConnClosed)
	})
}

// TestElection_ForgedHintDoesNotEndElection checks that a hint which says that the election has ended does not end
// it: any client could have sent the message from which the feed made the hint.
func TestElection_ForgedHintDoesNotEndElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, forged := memory.NewTable().Store("election"), make(chan changefeed.Event, 1)
		e, err := changefeed.NewElection(&storeFuncs{Store: s, subscribe: func(ctx context.Context) (changefeed.Feed, error) {
			f, err := s.Subscribe(ctx)
			return &feedFuncs{Feed: f, next: func(ctx context.Context) (changefeed.Event, error) {
				for {
					short, cancel := context.WithTimeout(ctx, time.Millisecond)
					e, err := f.Next(short)
					timedOut := short.Err() != nil && ctx.Err() == nil
					cancel()
					if err == nil || !timedOut {
						return e, err
					}
					select {
					case e := <-forged:
						return e, nil
					default:
					}
				}
			}}, err
		}})
		require.NoError(t, err)
		l, ended := startLeader(t, e)
		time.Sleep(5 * time.Second)
		require.NoError(t, l.Err())
		r, err := s.Read(context.Background())
		require.NoError(t, err)
		r.Ended, r.Seq, r.Version = true, r.Seq+1000, "forged"
		forged <- changefeed.Event{Record: r, Hint: true}
		time.Sleep(10 * time.Second)
		require.Empty(t, forged)
		require.Empty(t, ended)
		require.NoError(t, l.Err())
		require.NoError(t, e.Resign())
		require.NoError(t, <-ended)
	})
}
