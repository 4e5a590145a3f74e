package changefeed_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
)

// TestEndElection_DoesNotWaitForClosingFeed checks that EndElection, after Resign, does not wait for the
// feed of the candidacy, which takes a minute to close.
func TestEndElection_DoesNotWaitForClosingFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.NewTable().Store("election")
		e, err := changefeed.NewElection(&storeFuncs{Store: s, subscribe: func(ctx context.Context) (changefeed.Feed, error) {
			f, err := s.Subscribe(ctx)
			return &feedFuncs{Feed: f, close: func() error { time.Sleep(time.Minute); return f.Close() }}, err
		}})
		require.NoError(t, err)
		_, ended := startLeader(t, e)
		require.NoError(t, e.Resign())
		begin := time.Now()
		require.NoError(t, e.EndElection())
		require.LessOrEqual(t, time.Since(begin), 2*time.Second)
		require.NoError(t, <-ended)
		time.Sleep(time.Minute)
	})
}

// TestDeleteElection_EndsElectionWithoutRecord checks that DeleteElection ends an election whose record does
// not exist yet, so that no candidate can join, and creates no record with WithoutCreate.
func TestDeleteElection_EndsElectionWithoutRecord(t *testing.T) {
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
	require.ErrorIs(t, changefeed.DeleteElection(nil), leaderelection.ErrInvalid)
}

// TestRestartElection_ExcludesCandidatesOfEndedElection checks that a candidate that has not noticed that
// its election has ended does not participate in the next election, and that tokens increase.
func TestRestartElection_ExcludesCandidatesOfEndedElection(t *testing.T) {
	runInBubble(t, func(h *harness) {
		store := h.table.Store("election")
		require.ErrorIs(h, changefeed.RestartElection(store), leaderelection.ErrNoElection)
		one, two, partitioned := h.join("one"), h.join("two"), h.join("partitioned")
		token := h.awaitLeader().token()
		heal := partitioned.network.Cut()
		time.Sleep(2 * time.Second)
		require.ErrorIs(h, changefeed.RestartElection(store), changefeed.ErrNotEnded)
		require.NoError(h, changefeed.DeleteElection(store))
		require.NoError(h, changefeed.DeleteElection(store))
		require.ErrorIs(h, <-one.ended, leaderelection.ErrElectionOver)
		require.ErrorIs(h, <-two.ended, leaderelection.ErrElectionOver)
		require.ErrorIs(h, changefeed.Transfer(h.Context(), store, "two"), leaderelection.ErrElectionOver)
		require.NoError(h, changefeed.RestartElection(store))
		next := h.joinAndLead("next")
		require.Greater(h, next.token(), token)
		heal()
		require.ErrorIs(h, <-partitioned.ended, leaderelection.ErrElectionOver)
	})
}

// TestRestartElection_RestartsOnceIfResponseIsLost checks that RestartElection neither returns an error nor
// restarts the election again when the response to its write was lost.
func TestRestartElection_RestartsOnceIfResponseIsLost(t *testing.T) {
	for name, afterWrite := range map[string]func(changefeed.Store) error{
		"Restarted":  func(changefeed.Store) error { return nil },
		"EndedAgain": func(s changefeed.Store) error { return changefeed.DeleteElection(s) },
	} {
		t.Run(name, func(t *testing.T) {
			runInBubble(t, func(h *harness) {
				store := h.table.Store("election")
				require.NoError(h, changefeed.DeleteElection(store))
				network := storetest.NewFaulty(h.table.Store("election"), 1)
				defer network.Close()
				writes := 0
				require.NoError(h, changefeed.RestartElection(&storeFuncs{
					Store: network,
					heartbeat: func(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
						writes++
						network.Set(storetest.Faults{After: 1})
						defer network.Set(storetest.Faults{})
						r, err := network.Heartbeat(ctx, prev, next)
						require.ErrorIs(h, err, storetest.ErrInjected)
						require.NoError(h, afterWrite(store))
						return r, err
					},
				}))
				require.Equal(h, 1, writes)
			})
		})
	}
}

// TestRestartElection_DelaysLeaderUntilLeaseExpires checks that there is no leader after a restart before the
// lease of the last leader has expired, because that leader may not have noticed that the election has ended.
func TestRestartElection_DelaysLeaderUntilLeaseExpires(t *testing.T) {
	runInBubble(t, func(h *harness) {
		old := h.joinAndLead("old")
		h.passTime(time.Second)
		old.network.Cut()
		l := old.Current().Leadership
		store := h.table.Store("election")
		require.NoError(h, changefeed.DeleteElection(store))
		require.NoError(h, changefeed.RestartElection(store))
		require.NoError(h, l.Err())
		next := h.join("next")
		h.passUntil(next.isLeader)
		require.Error(h, l.Err())
	})
}

// TestRestartElection_RaisesTermToWallClock checks that the term of the restarted election is not smaller than
// the wall clock's time: an earlier record may have been lost, and the last record may have been created by a
// program whose clock was behind.
func TestRestartElection_RaisesTermToWallClock(t *testing.T) {
	runInBubble(t, func(h *harness) {
		s := h.table.Store("election")
		ended := changefeed.Record{Epoch: "0.x", Seq: 1, TTL: time.Second, Term: 5, Ended: true}
		require.NoError(h, s.Create(h.Context(), ended))
		require.NoError(h, changefeed.RestartElection(s))
		require.EqualValues(h, time.Now().UnixMilli(), h.record().Term)
	})
}
