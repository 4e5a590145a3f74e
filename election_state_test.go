package leaderelection

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/queue"
)

// TestElection_UnreadLeadershipIsRetracted fails if a leadership is delivered after it has ended,
// because its status was not received before.
func TestElection_UnreadLeadershipIsRetracted(t *testing.T) {
	for name, reason := range map[string]error{"deleted": ErrDeleted, "expired": ErrSessionExpired} {
		t.Run(name, func(t *testing.T) {
			e := &Election{
				conn: new(zk.Conn), node: "/election", candidacy: newCandidacy(t.Context(), nil),
			}
			e.queueChanged(queue.State{Path: "/election/n_0000000000", First: true, Proven: true, Lease: hour{}})
			leadership := e.Current().Leadership
			require.NoError(t, leadership.Err())
			e.queueChanged(queue.State{Err: reason})
			require.Error(t, leadership.Err())
			require.Nil(t, e.Current().Leadership)
			select {
			case s := <-e.Status():
				require.Nil(t, s.Leadership, "the leadership is over")
			default:
			}
		})
	}
}

// hour is a lease that lasts.
type hour struct{}

func (hour) Deadline() time.Time                { return time.Now().Add(time.Hour) }
func (hour) EndOnClose(context.CancelCauseFunc) {}

// TestElection_StoppedAsSessionExpires fails if a candidate with WithRejoin that is stopped before it
// joins again reports session expiry as the reason. Nor may it join again after the election has been
// deleted and its session has expired.
func TestElection_StoppedAsSessionExpires(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	e := &Election{
		conn: new(zk.Conn), node: "/election", rejoin: true, candidacy: newCandidacy(t.Context(), nil),
		log: slog.New(slog.DiscardHandler), seen: seenNode{czxid: 1, session: 1},
	}
	require.NoError(t, e.rejoinAfter(ctx, ErrSessionExpired))
	require.ErrorIs(t, e.rejoinAfter(ctx, ErrElectionOver), ErrElectionOver)
	require.ErrorIs(t, e.rejoinAfter(ctx, ErrDeleted), ErrDeleted)
	stop(ErrElectionOver)
	require.Equal(t, ErrElectionOver, e.rejoinAfter(ctx, ErrSessionExpired))
	require.ErrorIs(t, e.rejoinAfter(ctx, ErrDeleted), ErrDeleted)
	e.rejoin = false
	require.ErrorIs(t, e.rejoinAfter(ctx, ErrSessionExpired), ErrSessionExpired)
}

// TestElection_ConfigOfRemoval fails if a candidate that joins again changes the configuration that
// the removal of its earlier znode still uses, or copies it if no removal does.
func TestElection_ConfigOfRemoval(t *testing.T) {
	e := &Election{conn: new(zk.Conn), candidacy: newCandidacy(t.Context(), nil), seen: seenNode{czxid: 1, session: 1}}
	first := e.queueConfig()
	require.Same(t, first, e.queueConfig())
	pending := new(queue.Removal)
	e.leftQueue(pending)
	e.seen = seenNode{czxid: 2, session: 2}
	second := e.queueConfig()
	require.EqualValues(t, 1, first.QueueSession)
	require.EqualValues(t, 2, second.QueueSession)
}
