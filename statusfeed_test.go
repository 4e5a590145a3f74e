package leaderelection

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func leading(token int64) Status {
	grant, _ := NewLeadership(token, nil)
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

func TestLateReaderGetsTheNewestStatus(t *testing.T) {
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

func TestEndOfAToldLeadershipIsNotSwallowed(t *testing.T) {
	f := newStatusFeed()
	first, again := leading(7), leading(7)
	f.Publish(first)
	require.Equal(t, first, receiveStatus(t, f))
	f.Publish(Status{Role: Suspended})
	f.Publish(again)
	require.Equal(t, Suspended, receiveStatus(t, f).Role)
	require.Equal(t, again, receiveStatus(t, f))

	// Whoever has not read of the second leadership need not read of its end.
	f.Publish(Status{Role: Suspended})
	f.Publish(leading(7))
	f.Publish(Status{Role: Suspended})
	third := leading(7)
	f.Publish(third)
	require.Equal(t, Suspended, receiveStatus(t, f).Role)
	require.Equal(t, third, receiveStatus(t, f))
}

func TestUntoldLeadershipMayBeSkipped(t *testing.T) {
	f := newStatusFeed()
	f.Publish(leading(1))
	f.Publish(Status{Role: Suspended})
	second := leading(1)
	f.Publish(second)
	require.Equal(t, second, receiveStatus(t, f))
}

func TestFinalStatusIsDelivered(t *testing.T) {
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

func TestWithdrawTakesBackWhatWasNotRead(t *testing.T) {
	f := newStatusFeed()
	f.Publish(leading(1))
	f.Withdraw()
	requireClosed(t, f)
	require.Equal(t, Follower, f.Current().Role)
}

func TestRetract(t *testing.T) {
	f := newStatusFeed()
	f.Publish(leading(1))
	f.Retract(Status{CandidateID: "x"})
	require.Empty(t, f.C())
	require.Equal(t, Status{CandidateID: "x"}, f.Current())
	f.Publish(Status{NowFollowing: "a"})
	require.Equal(t, "a", receiveStatus(t, f).NowFollowing)
}

// Whatever is published and read in whatever order: a reader that was told of a
// leadership hears of something that is not it before it hears of another, and
// having read everything it knows the newest.
func TestContractHoldsForEveryOrder(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		f := newStatusFeed()
		var told *Leadership
		var newest Status
		receive := func(s Status) {
			if s.Leadership != nil && told != nil {
				require.Same(t, told, s.Leadership, "seed %d: a new leadership without the end of the old one", seed)
			}
			told, newest = s.Leadership, s
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

// A reader that receives while statuses are replaced never receives two leaderships without a
// status between them.
func TestConcurrentReaderReceivesEveryLoss(t *testing.T) {
	f := newStatusFeed()
	received := make(chan error, 1)
	go func() {
		var held *Leadership
		var err error
		for s := range f.C() {
			if held != nil && s.Leadership != nil && s.Leadership != held && err == nil {
				err = errors.New("a leadership directly after another one")
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
