package rpc_test

// Calls over a connection in memory, to peers that fail as they are told.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/rpctest"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

var a, b = api.Peer{ID: "a", Addr: "a:1"}, api.Peer{ID: "b", Addr: "b:1"}

type setup struct {
	cluster   *rpctest.Cluster
	peer      *rpctest.Peer
	server    *rpc.Server
	caller    *rpc.Caller
	near, far *rpctest.End
	served    chan error
	ctx       context.Context
	stop      context.CancelCauseFunc
	streams   sync.WaitGroup
}

// dial returns the client's end of a new connection for a stream, and the peer's end.
func (s *setup) dial() (near, far *rpctest.End) {
	near, far = rpctest.Pipe()
	s.streams.Go(func() { _ = s.server.Stream(s.ctx, far, "client") })
	return near, far
}

// entries requests a stream on a new connection.
func (s *setup) entries(ctx context.Context, from uint64) *rpc.Stream {
	near, _ := s.dial()
	return rpc.Entries(ctx, near, from, 0)
}

// inBubble has f run against a peer, a, that leads.
func inBubble(t *testing.T, f func(t *testing.T, s *setup)) {
	synctest.Test(t, func(t *testing.T) {
		s := &setup{cluster: rpctest.New(a, b), served: make(chan error, 1)}
		s.peer = s.cluster.Peer(a)
		s.server = rpc.NewServer(s.peer)
		s.near, s.far = rpctest.Pipe()
		s.ctx, s.stop = context.WithCancelCause(t.Context())
		go func() { s.served <- s.server.Calls(s.ctx, s.far) }()
		s.caller = rpc.NewCaller(s.near)
		f(t, s)
		s.caller.Close()
		s.stop(nil)
		s.streams.Wait()
		synctest.Wait()
		require.Len(t, s.served, 1, "Serve returns")
	})
}

// proposing proposes, and returns where the error will be.
func proposing(ctx context.Context, c *rpc.Caller) <-chan error {
	result := make(chan error, 1)
	go func() {
		_, err := c.Propose(ctx, requestid.New(), nil)
		result <- err
	}()
	return result
}

// drain reads frames, as a server would that answers nothing.
func drain(t *testing.T, far *rpctest.End, frames int) {
	for range frames {
		_, err := far.ReadFrame()
		require.NoError(t, err)
	}
}

func TestCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, s *setup) {
		ctx := t.Context()
		id := requestid.New()
		index, err := s.caller.Propose(ctx, id, []byte("x"))
		require.NoError(t, err)
		require.EqualValues(t, 1, index)
		_, err = s.caller.Propose(ctx, id, []byte("y"))
		require.ErrorIs(t, err, api.ErrRequestIDReused)
		require.Contains(t, err.Error(), id.String())
		require.NotErrorIs(t, err, api.ErrUnknownOutcome)
		index, err = s.caller.ChangePeers(ctx, requestid.New(), []api.Peer{b})
		require.NoError(t, err)
		require.EqualValues(t, 2, index)
		m, err := s.caller.Membership(ctx)
		require.NoError(t, err)
		require.Equal(t, api.Membership{Index: 2, Voters: []api.Peer{b}}, m)
		info, err := s.caller.Info(ctx)
		require.NoError(t, err)
		require.Equal(t, a, info.Peer)
		election := api.Election{Candidates: []api.Candidate{{ID: "a/1", Name: "one", Value: "x:1", Token: 7}, {ID: "a/2"}}}
		s.cluster.SetElection("report", election)
		got, err := s.caller.Election(ctx, "report")
		require.NoError(t, err)
		require.Equal(t, election, got)
		require.ErrorIs(t, s.caller.AskToResign(ctx, "report", "b/1"), api.ErrNoCandidate)
		require.NoError(t, s.caller.AskToResign(ctx, "report", "a/1"))
		got, err = s.caller.Election(ctx, "report")
		require.NoError(t, err)
		require.Equal(t, election.Candidates[1:], got.Candidates)
		_, err = s.caller.Election(ctx, strings.Repeat("x", 1<<12))
		require.ErrorIs(t, err, api.ErrInvalid)
		s.cluster.Lead(b)
		_, err = s.caller.Propose(ctx, requestid.New(), nil)
		not, ok := errors.AsType[*api.NotLeaderError](err)
		require.True(t, ok)
		require.Equal(t, b, not.Leader)
		s.caller.Close()
		require.NoError(t, <-s.served, "a caller that goes is no error")
		s.served <- nil
	})
}

// TestManyCalls has a slow call, and many that do not wait for it, in few frames.
func TestManyCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, s *setup) {
		s.cluster.Hold()
		const n = 256
		var calls sync.WaitGroup
		for i := range n {
			calls.Go(func() {
				_, err := s.caller.Propose(t.Context(), requestid.New(), fmt.Append(nil, i))
				require.NoError(t, err)
			})
		}
		synctest.Wait()
		require.Equal(t, n, s.peer.Calls("Propose"))
		_, err := s.caller.Info(t.Context())
		require.NoError(t, err)
		before := s.far.Written()
		s.cluster.Release()
		calls.Wait()
		require.Less(t, s.far.Written()-before, n/4, "replies that come together are written together")
	})
}

func TestCancel(t *testing.T) {
	inBubble(t, func(t *testing.T, s *setup) {
		why := errors.New("no time")
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan struct{})
		s.peer.Before(func(ctx context.Context, call string) error {
			<-ctx.Done()
			close(ended)
			return context.Cause(ctx)
		})
		result := proposing(ctx, s.caller)
		synctest.Wait()
		cancel(why)
		err := <-result
		require.ErrorIs(t, err, why)
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
		<-ended // the server's side is cancelled as well
		_, err = s.caller.Propose(ctx, requestid.New(), nil)
		require.ErrorIs(t, err, why)
		require.NotErrorIs(t, err, api.ErrUnknownOutcome, "was not sent")
	})
}

// TestLostConnection tells what may have been done from what was not.
func TestLostConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, s *setup) {
		s.cluster.Hold()
		proposed, changed := proposing(t.Context(), s.caller), make(chan error, 1)
		go func() {
			_, err := s.caller.ChangePeers(t.Context(), requestid.New(), nil)
			changed <- err
		}()
		synctest.Wait()
		s.far.Close()
		for _, err := range []error{<-proposed, <-changed} {
			require.ErrorIs(t, err, api.ErrUnknownOutcome)
			require.ErrorIs(t, err, rpc.ErrLost)
			require.ErrorIs(t, err, io.EOF)
		}
		_, err := s.caller.Propose(t.Context(), requestid.New(), nil)
		require.ErrorIs(t, err, rpc.ErrLost)
		require.NotErrorIs(t, err, api.ErrUnknownOutcome, "was not sent")
		require.ErrorIs(t, s.caller.Err(), rpc.ErrLost)
		<-s.caller.Done()
	})
}

// TestNotTaken has a server that reads one request and then nothing: requests after the one
// that is being written were not sent.
func TestNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, _ := rpctest.Pipe()
		c := rpc.NewCaller(near)
		first := proposing(t.Context(), c)
		synctest.Wait() // it is being written
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := <-proposing(short, c)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, api.ErrUnknownOutcome)
		second := proposing(t.Context(), c)
		synctest.Wait()
		c.Close()
		err = <-first
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
		require.ErrorIs(t, err, api.ErrClosed)
		err = <-second
		require.ErrorIs(t, err, api.ErrClosed)
		require.NotErrorIs(t, err, api.ErrUnknownOutcome)
	})
}

// TestUnknownErrors: an error that says nothing of what was done leaves that open.
func TestUnknownErrors(t *testing.T) {
	inBubble(t, func(t *testing.T, s *setup) {
		s.peer.After(func(context.Context, string) error { return errors.New("broken") })
		_, err := s.caller.Propose(t.Context(), requestid.New(), nil)
		require.ErrorIs(t, err, api.ErrUnknownOutcome)
		require.ErrorContains(t, err, "broken")
	})
}

// TestTooMuchPending: updates that wait have a limit in bytes.
func TestTooMuchPending(t *testing.T) {
	inBubble(t, func(t *testing.T, s *setup) {
		s.cluster.Hold()
		data := make([]byte, wire.MaxData)
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() {
				_, err := s.caller.Propose(t.Context(), requestid.New(), data)
				require.NoError(t, err)
			})
			synctest.Wait()
		}
		_, err := s.caller.Propose(t.Context(), requestid.New(), []byte("x"))
		require.ErrorIs(t, err, api.ErrBusy)
		s.cluster.Release()
		calls.Wait()
		_, err = s.caller.Propose(t.Context(), requestid.New(), []byte("x"))
		require.NoError(t, err)
	})
}

// TestServeEnds: the end of its context ends calls and the connection.
func TestServeEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, s *setup) {
		s.cluster.Hold()
		result := proposing(t.Context(), s.caller)
		synctest.Wait()
		why := errors.New("node ends")
		s.stop(why)
		require.ErrorIs(t, <-s.served, why)
		require.ErrorIs(t, <-result, api.ErrUnknownOutcome)
		s.served <- nil
	})
}

func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := rpctest.Pipe()
		c := rpc.NewCaller(near)
		defer c.Close()
		require.NoError(t, c.Alive(t.Context()), "with no calls it asks nothing")
		result := make(chan error, 1)
		go func() {
			_, err := c.Info(t.Context())
			result <- err
		}()
		go drain(t, far, 2)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, c.Alive(ctx), rpc.ErrLost)
		require.ErrorIs(t, <-result, rpc.ErrLost)
	})
	inBubble(t, func(t *testing.T, s *setup) {
		s.cluster.Hold()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		go func() {
			for s.caller.Alive(t.Context()) == nil {
				time.Sleep(100 * time.Millisecond)
			}
		}()
		_, err := s.caller.Propose(ctx, requestid.New(), nil)
		require.ErrorIs(t, err, context.DeadlineExceeded, "a slow peer that answers is not given up")
		s.caller.Close()
		time.Sleep(time.Second)
	})
}
