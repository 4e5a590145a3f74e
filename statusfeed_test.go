package leaderelection

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func leading(token int64) Status {
	grant, _ := newLeadership(token, nil)
	return Status{Role: Leader, Leadership: grant}
}

func receiveStatus(t *testing.T, f *statusFeed) Status {
	t.Helper()
	select {
	case s, ok := <-f.C():
		require.True(t, ok, "the channel is closed")
		return s
	case <-time.After(time.Minute):
		require.Fail(t, "nothing to read")
		return Status{}
	}
}

func requireClosed(t *testing.T, f *statusFeed) {
	t.Helper()
	select {
	case s, ok := <-f.C():
		require.False(t, ok, "unexpected %v", s)
	default:
		require.Fail(t, "the channel is open")
	}
}

// TestStatusFeed_Newest fails if a slow reader does not receive the newest status.
func TestStatusFeed_Newest(t *testing.T) {
	f := newStatusFeed()
	f.Publish(Status{NowFollowing: "a"})
	f.Publish(Status{NowFollowing: "b"})
	last := leading(7)
	f.Publish(last)
	require.Equal(t, last, f.Current())
	require.Equal(t, last, receiveStatus(t, f))
	f.Withdraw()
	requireClosed(t, f)
}

// TestStatusFeed_LossIsDelivered fails if the loss of a leadership that the reader has received is
// replaced by a later status.
func TestStatusFeed_LossIsDelivered(t *testing.T) {
	f := newStatusFeed()
	first, again := leading(7), leading(7)
	f.Publish(first)
	require.Equal(t, first, receiveStatus(t, f))
	f.Publish(Status{Role: Suspended})
	f.Publish(again)
	require.Equal(t, Suspended, receiveStatus(t, f).Role)
	require.Equal(t, again, receiveStatus(t, f))

	// A reader that has not received a leadership does not receive its loss.
	f.Publish(Status{Role: Suspended})
	f.Publish(leading(7))
	f.Publish(Status{Role: Suspended})
	third := leading(7)
	f.Publish(third)
	require.Equal(t, Suspended, receiveStatus(t, f).Role)
	require.Equal(t, third, receiveStatus(t, f))
}

// TestStatusFeed_Finish fails if the final status is not the last one.
func TestStatusFeed_Finish(t *testing.T) {
	f := newStatusFeed()
	f.Publish(leading(1))
	receiveStatus(t, f)
	f.Publish(Status{Role: Suspended})
	f.Finish(Status{Err: ErrSessionExpired})
	require.ErrorIs(t, receiveStatus(t, f).Err, ErrSessionExpired)
	requireClosed(t, f)
	f.Publish(leading(2))
	f.Retract(leading(2))
	f.Finish(Status{Err: errors.New("late")})
	f.Withdraw()
	require.ErrorIs(t, f.Current().Err, ErrSessionExpired)
}

// TestStatusFeed_Withdraw fails if an unread status remains.
func TestStatusFeed_Withdraw(t *testing.T) {
	f := newStatusFeed()
	f.Publish(leading(1))
	f.Withdraw()
	requireClosed(t, f)
	require.Equal(t, Follower, f.Current().Role)
}

// TestStatusFeed_Retract fails if an unread status remains, or if the new one is delivered.
func TestStatusFeed_Retract(t *testing.T) {
	f := newStatusFeed()
	f.Publish(leading(1))
	f.Retract(Status{CandidateID: "x"})
	require.Empty(t, f.C())
	require.Equal(t, Status{CandidateID: "x"}, f.Current())
	f.Publish(Status{NowFollowing: "a"})
	require.Equal(t, "a", receiveStatus(t, f).NowFollowing)
}

// TestStatusFeed_RandomOrder publishes and receives in random orders. It fails if a reader receives two
// leaderships without another status between them, or does not receive the newest status last.
func TestStatusFeed_RandomOrder(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		f := newStatusFeed()
		var held *Leadership
		var newest Status
		receive := func(s Status) {
			if s.Leadership != nil && held != nil {
				require.Same(t, held, s.Leadership, "seed %d: a new leadership without the loss of the old one", seed)
			}
			held, newest = s.Leadership, s
		}
		for range 30 {
			switch r.IntN(5) {
			case 0:
				f.Publish(leading(int64(seed)))
			case 1:
				f.Publish(Status{Role: Suspended})
			case 2:
				f.Publish(Status{NowFollowing: "x"})
			default:
				select {
				case s := <-f.C():
					receive(s)
				default:
				}
			}
		}
		f.Finish(Status{Err: ErrElectionOver})
		for s := range f.C() {
			receive(s)
		}
		require.ErrorIs(t, newest.Err, ErrElectionOver, "seed %d", seed)
	}
}

// TestStatusFeed_ConcurrentReader fails if a reader that receives while statuses are replaced receives
// two leaderships without another status between them.
func TestStatusFeed_ConcurrentReader(t *testing.T) {
	f := newStatusFeed()
	received := make(chan error, 1)
	go func() {
		var held *Leadership
		var err error
		for s := range f.C() {
			if held != nil && s.Leadership != nil && s.Leadership != held && err == nil {
				err = errors.New("two leaderships without a status between them")
			}
			held = s.Leadership
		}
		received <- err
	}()
	for range 100_000 {
		f.Publish(leading(1))
		f.Publish(Status{Role: Suspended})
	}
	f.Withdraw()
	require.NoError(t, <-received)
}
