package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/rpctest"
)

// TestPropose_FindsLeader checks that the client calls the leader that another peer names without a pause,
// remembers this leader, and uses one connection for all calls.
func TestPropose_FindsLeader(t *testing.T) {
	runCluster(t, []api.Peer{b}, func(t *testing.T, network *rpctest.Network, client *Client) {
		start := time.Now()
		for i := range uint64(3) {
			index, err := client.Propose(t.Context(), api.NewRequestID(), []byte("x"))
			require.NoError(t, err)
			require.Equal(t, i+1, index)
		}
		require.Zero(t, time.Since(start), "the client pauses before it calls the named leader")
		require.Equal(t, 1, network.Peer(b).Calls("Propose"), "the client remembers the leader")
		require.Equal(t, 3, network.Peer(a).Calls("Propose"))
		require.Equal(t, 1, network.Dials("a"), "all calls use one connection")
	})
}

// TestPropose_RetriesWithPausesWithoutLeader checks that a call is retried at all peers, with pauses, while
// there is no leader, until its context is done.
func TestPropose_RetriesWithPausesWithoutLeader(t *testing.T) {
	runCluster(t, all, func(t *testing.T, network *rpctest.Network, client *Client) {
		network.Lead(api.Peer{})
		_, err := client.Propose(contextWithin(t, 30*time.Second), api.NewRequestID(), nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, api.ErrNotLeader)
		require.NotErrorIs(t, err, api.ErrUnknownOutcome, "no peer has accepted the update")
		n := countCalls(network, "Propose")
		require.LessOrEqual(t, n, 200, "more than one attempt in half a pause")
		require.GreaterOrEqual(t, n, 66)
		for _, p := range all {
			require.Greater(t, network.Peer(p).Calls("Propose"), 20, "each peer is called")
		}
		go func() {
			time.Sleep(time.Second)
			network.Lead(c)
		}()
		start := time.Now()
		_, err = client.Propose(t.Context(), api.NewRequestID(), nil)
		require.NoError(t, err)
		require.Less(t, time.Since(start), 1500*time.Millisecond)
	})
}

// TestPropose_PausesInRedirectLoop checks that a call pauses after a few redirects when two peers redirect to
// each other.
func TestPropose_PausesInRedirectLoop(t *testing.T) {
	runCluster(t, []api.Peer{a, b}, func(t *testing.T, network *rpctest.Network, client *Client) {
		redirect := func(to api.Peer) func(context.Context, string) error {
			return func(_ context.Context, call string) error {
				switch {
				case call != "Propose":
					return nil
				case countCalls(network, "Propose") > 1000:
					return api.ErrStale // the call ends, because ErrStale is permanent
				}
				return &api.NotLeaderError{Leader: to}
			}
		}
		network.Peer(a).Before(redirect(b))
		network.Peer(b).Before(redirect(a))
		_, err := client.Propose(contextWithin(t, 3*time.Second), api.NewRequestID(), nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, countCalls(network, "Propose"), 21*(1+maxRedirects))
	})
}

// TestPropose_AppliesUpdateOnceIfReplyIsLost checks that Propose succeeds, and applies the update once, if the
// update was applied but the reply was lost.
func TestPropose_AppliesUpdateOnceIfReplyIsLost(t *testing.T) {
	for name, lose := range map[string]func(network *rpctest.Network) error{
		"connection": func(network *rpctest.Network) error { network.Cut("a"); return io.EOF },
		"unknown":    func(*rpctest.Network) error { return api.ErrUnknownOutcome },
		"other":      func(*rpctest.Network) error { return errors.New("broken") },
		"leader":     func(network *rpctest.Network) error { network.Lead(b); return &api.NotLeaderError{Leader: b} },
	} {
		t.Run(name, func(t *testing.T) {
			runCluster(t, all, func(t *testing.T, network *rpctest.Network, client *Client) {
				network.Peer(a).After(func(context.Context, string) error {
					network.Peer(a).After(nil)
					return lose(network)
				})
				id := api.NewRequestID()
				index, err := client.Propose(contextWithin(t, time.Minute), id, []byte("x"))
				require.NoError(t, err)
				require.EqualValues(t, 1, index)
				require.Len(t, network.Entries(id), 1)
				require.LessOrEqual(t, countCalls(network, "Propose"), 4)
			})
		})
	}
}

// TestPropose_RepeatsUpdateAfterLostConnection checks that pending updates are proposed again when the
// connection is lost, and that concurrent calls with the same ID return the same index. This covers defect Z8
// of ØMQ Raft.
func TestPropose_RepeatsUpdateAfterLostConnection(t *testing.T) {
	runCluster(t, all, func(t *testing.T, network *rpctest.Network, client *Client) {
		network.Hold()
		id := api.NewRequestID()
		other := openClient(t, network, Config{Peers: all, Refresh: -1})
		defer other.Close()
		var calls sync.WaitGroup
		for _, client := range []*Client{client, client, other} {
			calls.Go(func() {
				index, err := client.Propose(contextWithin(t, time.Minute), id, []byte("x"))
				require.NoError(t, err)
				require.EqualValues(t, 1, index)
			})
		}
		synctest.Wait()
		require.Equal(t, 2, network.Cut("a"))
		time.Sleep(5 * time.Second)
		require.Equal(t, 6, network.Peer(a).Calls("Propose"), "each call is repeated once")
		network.Release()
		calls.Wait()
		require.Len(t, network.Entries(id), 1)
	})
}

// TestPropose_ReturnsErrUnknownOutcomeIfMaybeApplied checks that the error wraps ErrUnknownOutcome if any
// attempt may have been applied, and does not if the request was never sent.
func TestPropose_ReturnsErrUnknownOutcomeIfMaybeApplied(t *testing.T) {
	runCluster(t, all, func(t *testing.T, network *rpctest.Network, client *Client) {
		network.Hold()
		_, err := client.Propose(contextWithin(t, time.Second), api.NewRequestID(), nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
		_, err = client.ChangePeers(contextWithin(t, time.Second), api.NewRequestID(), all)
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
		// The outcome is unknown if an attempt that may have been applied precedes a permanent error.
		network.Peer(a).Before(func(context.Context, string) error {
			network.Peer(a).Before(nil)
			network.Peer(b).Before(func(context.Context, string) error { return api.ErrTooManyIDs })
			return api.ErrUnknownOutcome
		})
		_, err = client.Propose(contextWithin(t, time.Minute), api.NewRequestID(), nil)
		require.ErrorIs(t, err, api.ErrTooManyIDs)
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
		for _, p := range all {
			network.Down(p.ID, errors.New("no route"))
		}
		synctest.Wait() // wait until the client has noticed that its connections have ended
		_, err = client.Propose(contextWithin(t, 10*time.Second), api.NewRequestID(), nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "no route")
		require.NotErrorIs(t, err, api.ErrUnknownOutcome, "the update was not sent")
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = client.Propose(cancelled, api.NewRequestID(), nil)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, api.ErrUnknownOutcome)
	})
}

// TestPropose_DoesNotRetryPermanentErrors checks that Propose returns a permanent error of a peer without
// another attempt.
func TestPropose_DoesNotRetryPermanentErrors(t *testing.T) {
	runCluster(t, []api.Peer{a}, func(t *testing.T, network *rpctest.Network, client *Client) {
		for i, cause := range permanentErrors {
			network.Peer(a).Before(func(context.Context, string) error { return fmt.Errorf("rejected: %w", cause) })
			_, err := client.Propose(contextWithin(t, time.Minute), api.NewRequestID(), nil)
			require.ErrorIs(t, err, cause)
			require.NotErrorIs(t, err, api.ErrUnknownOutcome)
			require.Equal(t, i+1, countCalls(network, "Propose"))
		}
		_, err := client.Propose(t.Context(), api.RequestID{}, nil)
		require.ErrorIs(t, err, api.ErrInvalid)
		_, err = client.ChangePeers(t.Context(), api.NewRequestID(), nil)
		require.ErrorIs(t, err, api.ErrInvalid)
		require.Equal(t, len(permanentErrors), countCalls(network, "Propose"))
	})
}

// TestPropose_RetriesBusyPeerWithPauses checks that a call is retried with pauses when a peer is busy.
func TestPropose_RetriesBusyPeerWithPauses(t *testing.T) {
	runCluster(t, all, func(t *testing.T, network *rpctest.Network, client *Client) {
		network.Peer(a).Before(func(context.Context, string) error {
			if network.Peer(a).Calls("Propose") < 3 {
				return api.ErrBusy
			}
			return nil
		})
		_, err := client.Propose(contextWithin(t, time.Minute), api.NewRequestID(), nil)
		require.NoError(t, err)
		require.LessOrEqual(t, countCalls(network, "Propose"), 5)
	})
}

// TestPropose_ErrorContainsReasonOfEarlierAttempt checks that the error contains the reason of the previous
// attempt if the context has ended the last attempt.
func TestPropose_ErrorContainsReasonOfEarlierAttempt(t *testing.T) {
	runCluster(t, []api.Peer{a}, func(t *testing.T, network *rpctest.Network, client *Client) {
		network.Peer(a).Before(func(ctx context.Context, _ string) error {
			if network.Peer(a).Calls("Propose") < 3 {
				return fmt.Errorf("the queue is full: %w", api.ErrBusy)
			}
			<-ctx.Done()
			return ctx.Err()
		})
		_, err := client.Propose(contextWithin(t, 10*time.Second), api.NewRequestID(), nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "the queue is full")
		require.NotErrorIs(t, err, api.ErrBusy)
	})
}

// TestPropose_AbandonsUnresponsiveLeader checks that the client abandons a leader that accepts connections and
// requests, but never replies.
func TestPropose_AbandonsUnresponsiveLeader(t *testing.T) {
	runCluster(t, all, func(t *testing.T, network *rpctest.Network, client *Client) {
		_, err := client.Propose(t.Context(), api.NewRequestID(), nil)
		require.NoError(t, err)
		network.Deaf("a", true)
		network.Lead(b)
		start := time.Now()
		_, err = client.Propose(contextWithin(t, time.Minute), api.NewRequestID(), nil)
		require.NoError(t, err)
		require.Less(t, time.Since(start), 5*time.Second)
		m, err := client.Membership(contextWithin(t, time.Minute))
		require.NoError(t, err)
		require.Equal(t, all, m.Voters)
	})
}

// TestPropose_FindsLeaderThroughRemovedPeers checks that a client whose configured peers were all removed finds
// the leader: after a restart these peers know the other peers, but no leader.
func TestPropose_FindsLeaderThroughRemovedPeers(t *testing.T) {
	runCluster(t, all, func(t *testing.T, network *rpctest.Network, client *Client) {
		d, e := api.Peer{ID: "d", Addr: "d:1"}, api.Peer{ID: "e", Addr: "e:1"}
		network.SetMembers(api.Membership{Index: 9, Voters: []api.Peer{d, e}, Removed: []string{"a", "b", "c"}})
		network.Peer(d)
		network.Peer(e)
		network.Lead(d)
		for _, p := range all {
			network.Peer(p).Before(func(_ context.Context, call string) error {
				if call == "Propose" {
					return &api.NotLeaderError{}
				}
				return nil
			})
		}
		start := time.Now()
		_, err := client.Propose(contextWithin(t, time.Minute), api.NewRequestID(), nil)
		require.NoError(t, err)
		require.Less(t, time.Since(start), 5*time.Second)
	})
}
