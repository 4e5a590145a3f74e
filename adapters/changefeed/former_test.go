package changefeed_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// TestElection_FormerErrTellsHowFormerLeaderLeft checks that FormerErr tells whether the former leader has
// released the record, and is nil if the new leader cannot know that.
func TestElection_FormerErrTellsHowFormerLeaderLeft(t *testing.T) {
	const long = 5 * time.Second // long enough for a heartbeat that all candidates observe
	for name, c := range map[string]struct {
		lead time.Duration // how long the first leader leads
		end  func(h *harness, leader, other *candidate)
		want error
	}{
		"resigned":                    {long, func(h *harness, leader, _ *candidate) { require.NoError(h, leader.Resign()) }, leaderelection.ErrResigned},
		"transferred":                 {long, func(h *harness, _, other *candidate) { h.transfer(other) }, leaderelection.ErrResigned},
		"cut off":                     {long, func(_ *harness, leader, _ *candidate) { leader.network.Cut() }, leaderelection.ErrLeaseExpired},
		"resigned before a heartbeat": {0, func(h *harness, leader, _ *candidate) { require.NoError(h, leader.Resign()) }, nil},
		"record lost": {long, func(h *harness, leader, _ *candidate) {
			leader.network.Cut()
			h.table.Lose("election")
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			runInBubble(t, func(h *harness) {
				one, two := h.join("one"), h.join("two")
				leader := h.awaitLeader()
				other := map[*candidate]*candidate{one: two, two: one}[leader]
				require.NoError(h, leader.Current().FormerErr, "there was no former leader")
				h.passTime(c.lead)
				c.end(h, leader, other)
				h.passUntil(other.isLeader)
				require.Equal(h, c.want, other.Current().FormerErr)
			})
		})
	}
}

// TestElection_FormerErrIgnoresUnacknowledgedClaim checks that a claim that was not acknowledged does not count
// as a leadership.
func TestElection_FormerErrIgnoresUnacknowledgedClaim(t *testing.T) {
	runInBubble(t, func(h *harness) {
		leader := h.joinAndLead("one")
		other := h.newCandidate("two")
		lost := false
		s := &storeFuncs{Store: other.store.Store}
		s.heartbeat = func(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
			r, err := s.Store.Heartbeat(ctx, prev, next)
			if !lost && next.Term > prev.Term {
				lost = true
				return changefeed.Record{}, errors.Join(errBroken, err)
			}
			return r, err
		}
		other.store.Store = s
		other.start()
		h.passTime(5 * time.Second)
		require.NoError(h, leader.Resign())
		h.passUntil(other.isLeader)
		require.True(h, lost)
		require.Equal(h, leaderelection.ErrResigned, other.Current().FormerErr)
	})
}

// TestElection_NextIsTrueOnlyForTransferTarget checks that Status.Next is true for the target of a transfer,
// and for no other candidate.
func TestElection_NextIsTrueOnlyForTransferTarget(t *testing.T) {
	runInBubble(t, func(h *harness) {
		leader := h.joinAndLead("one")
		var followers []*candidate
		for _, id := range []string{"two", "three"} {
			c := h.newCandidate(id)
			events := c.Events()
			c.running.Go(func() { c.ended <- c.ElectLeader() })
			c.running.Go(func() {
				for range events {
				}
			})
			followers = append(followers, c)
		}
		h.passTime(5 * time.Second)
		two, three := followers[0], followers[1]
		require.Equal(h, leader.id, (<-two.Status()).NowFollowing)
		require.Equal(h, leader.id, (<-three.Status()).NowFollowing)
		heal := leader.network.Cut() // the leader does not notice the transfer
		ended := make(chan error, 1)
		go func() { ended <- changefeed.Transfer(h.Context(), h.table.Store("election"), two.id) }()
		synctest.Wait()
		s := <-two.Status()
		require.True(h, s.Next)
		require.Equal(h, leader.id, s.NowFollowing)
		require.Empty(h, three.Status())
		heal()
		require.NoError(h, <-ended)
		s = <-two.Status()
		require.Equal(h, leaderelection.Leader, s.Role)
		require.False(h, s.Next)
	})
}
