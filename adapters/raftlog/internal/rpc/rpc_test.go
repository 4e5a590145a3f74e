package rpc_test

// Calls over a connection in memory, to peers that fail as they are told.

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

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc/rpctest"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

var a, b = api.Peer{ID: "a", Addr: "a:1"}, api.Peer{ID: "b", Addr: "b:1"}

type setup struct {
	cluster   *rpctest.Cluster
	peer      *rpctest.Peer
	caller    *rpc.Caller
	near, far *rpctest.End
	served    chan error
	stop      context.CancelCauseFunc
}

// inBubble has f run against a peer, a, that leads.
func inBubble(t *testing.T, f func(t *testing.T, s *setup)) {
	synctest.Test(t, func(t *testing.T) {
		s := &setup{cluster: rpctest.New(a, b), served: make(chan error, 1)}
		s.peer = s.cluster.Peer(a)
		s.near, s.far = rpctest.Pipe()
		ctx, stop := context.WithCancelCause(t.Context())
		s.stop = stop
		go func() { s.served <- rpc.Serve(ctx, s.far, s.peer) }()
		s.caller = rpc.NewCaller(s.near)
		f(t, s)
		s.caller.Close()
		stop(nil)
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

// streaming is a caller that has asked for entries, and the end of a server that has answered
// with no more than a hello.
func streaming(t *testing.T) (*rpc.Caller, api.Events, *rpctest.End) {
	near, far := rpctest.Pipe()
	caller := rpc.NewCaller(near)
	t.Cleanup(func() { caller.Close() })
	events, err := caller.Entries(t.Context(), 1)
	require.NoError(t, err)
	drain(t, far, 2)
	require.NoError(t, far.WriteFrame([]byte("zkrl\x01")))
	return caller, events, far
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
		near, far := rpctest.Pipe()
		c := rpc.NewCaller(near)
		drain(t, far, 1) // hello
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

func TestStream(t *testing.T) {
	inBubble(t, func(t *testing.T, s *setup) {
		s.cluster.Append(10, 100)
		s.cluster.Compact(make([]byte, 300_000))
		s.cluster.Append(5, 100)
		events, err := s.caller.Entries(t.Context(), 1)
		require.NoError(t, err)
		defer events.Close()
		event, err := events.Next()
		require.NoError(t, err)
		require.EqualValues(t, 10, event.Snapshot.Index)
		_, err = events.Next()
		require.ErrorIs(t, err, api.ErrInvalid, "the snapshot was not read")
		data, err := io.ReadAll(event.Snapshot.Data)
		require.NoError(t, err)
		require.Len(t, data, 300_000)
		for i := range uint64(5) {
			event, err = events.Next()
			require.NoError(t, err)
			require.Equal(t, 11+i, event.Entry.Index)
			require.Len(t, event.Entry.Data, 100)
		}
		for range 3 {
			event, err = events.Next()
			require.NoError(t, err)
			require.Equal(t, &api.Pulse{Commit: 15, Term: 1, Leader: a, Fresh: true}, event.Pulse)
		}
		// A second one, that skips the data.
		other, err := s.caller.Entries(t.Context(), 1)
		require.NoError(t, err)
		event, err = other.Next()
		require.NoError(t, err)
		require.NoError(t, event.Snapshot.Data.Close())
		event, err = other.Next()
		require.NoError(t, err)
		require.EqualValues(t, 11, event.Entry.Index)
		require.NoError(t, other.Close())
		_, err = other.Next()
		require.ErrorIs(t, err, api.ErrClosed)

		whole, err := s.caller.Snapshot(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 10, whole.Index)
		data, err = io.ReadAll(whole.Data)
		require.NoError(t, err)
		require.Len(t, data, 300_000)
		require.NoError(t, whole.Data.Close())

		s.far.Close()
		_, err = events.Next()
		require.ErrorIs(t, err, rpc.ErrLost)
		require.NotErrorIs(t, err, api.ErrUnknownOutcome)
	})
}

// TestBackPressure has a stream that nobody reads: the server stops reading its log, and does
// other calls.
func TestBackPressure(t *testing.T) {
	for size, all := range map[int]int{1: 13_000, 10_000: 2_000} { // by count, by bytes
		inBubble(t, func(t *testing.T, s *setup) {
			s.cluster.Append(all, size)
			events, err := s.caller.Entries(t.Context(), 1)
			require.NoError(t, err)
			synctest.Wait()
			stopped := s.peer.Read()
			require.Less(t, stopped, uint64(all/2))
			require.Greater(t, stopped, uint64(100))
			_, err = s.caller.Propose(t.Context(), requestid.New(), nil)
			require.NoError(t, err)
			require.Equal(t, stopped, s.peer.Read())
			for i := range uint64(all) {
				event, err := events.Next()
				require.NoError(t, err)
				require.Equal(t, i+1, event.Entry.Index)
			}
			require.NoError(t, events.Close())
		})
	}
}

// TestStreamEnds has every way in which one can.
func TestStreamEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, s *setup) {
		s.peer.Silent(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		events, err := s.caller.Entries(ctx, 1)
		require.NoError(t, err)
		_, err = events.Next()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, events.Close())

		quiet, err := s.caller.Stream(t.Context(), 1)
		require.NoError(t, err)
		quiet.SetPatience(time.Minute)
		begun := time.Now()
		_, err = quiet.Next()
		require.ErrorIs(t, err, rpc.ErrQuiet)
		require.Equal(t, time.Minute, time.Since(begun))
		require.NoError(t, quiet.Close())

		open, err := s.caller.Entries(t.Context(), 1)
		require.NoError(t, err)
		go func() {
			time.Sleep(time.Second)
			open.Close()
		}()
		_, err = open.Next()
		require.ErrorIs(t, err, api.ErrClosed)

		s.peer.Before(func(context.Context, string) error { return api.ErrCompacted })
		refused, err := s.caller.Entries(t.Context(), 1)
		require.NoError(t, err)
		_, err = refused.Next()
		require.ErrorIs(t, err, api.ErrCompacted)
		_, err = s.caller.Snapshot(t.Context())
		require.ErrorIs(t, err, api.ErrCompacted)
	})
}

// TestTooManyStreams leaves room for other calls.
func TestTooManyStreams(t *testing.T) {
	inBubble(t, func(t *testing.T, s *setup) {
		for i := range 65 {
			events, err := s.caller.Entries(t.Context(), 1)
			require.NoError(t, err)
			defer events.Close()
			_, err = events.Next()
			if i < 64 {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, api.ErrBusy)
			}
		}
		_, err := s.caller.Info(t.Context())
		require.NoError(t, err)
	})
}

// TestTooMuchPending: updates that wait have a limit in bytes.
func TestTooMuchPending(t *testing.T) {
	inBubble(t, func(t *testing.T, s *setup) {
		s.cluster.Hold()
		data := make([]byte, rpc.MaxData)
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
		drain(t, far, 1)
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

// TestViolations has callers and servers that do not keep to the protocol.
func TestViolations(t *testing.T) {
	good := []byte("zkrl\x01")
	for name, frames := range map[string][][]byte{
		"nothing":       {{}},
		"other service": {[]byte("GET / HTTP/1.1\r\n")},
		"other version": {[]byte("zkrl\x02")},
		"no message":    {good, {1}},
		"unknown kind":  {good, {31, 1, 0}},
		"call twice":    {good, {4, 7, 0, 4, 7, 0}},
		"short propose": {good, {1, 1, 3, 0, 0, 0}},
		"bad grant":     {good, {8, 1, 1, 0}},
		"too much":      {good, append(append([]byte{5, 1, 11, 1}, 0x80, 0x80, 0x80, 0x80, 4, 0x80, 0x80, 0x80, 0x80, 4), 8, 1, 2, 1, 1)},
	} {
		t.Run("server/"+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := rpctest.Pipe()
				go func() {
					for range 2 {
						_, _ = near.ReadFrame()
					}
				}()
				served := make(chan error, 1)
				go func() { served <- rpc.Serve(t.Context(), far, rpctest.New(a).Peer(a)) }()
				for _, frame := range frames {
					require.NoError(t, near.WriteFrame(frame))
				}
				require.ErrorIs(t, <-served, rpc.ErrProtocol)
			})
		})
	}
	for name, c := range map[string]struct {
		frames  [][]byte
		unknown bool
	}{
		"other version":    {[][]byte{[]byte("zkrl\x02")}, false},
		"no message":       {[][]byte{good, {33}}, true},
		"not asked":        {[][]byte{good, {32, 9, 1, 1}}, true},
		"entry for update": {[][]byte{good, {35, 1, 0}}, true},
		"no index":         {[][]byte{good, {32, 1, 0}}, true},
		"no error":         {[][]byte{good, {33, 1, 0}}, true},
	} {
		t.Run("caller/"+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := rpctest.Pipe()
				caller := rpc.NewCaller(near)
				defer caller.Close()
				result := proposing(t.Context(), caller)
				drain(t, far, 2)
				for _, frame := range c.frames {
					require.NoError(t, far.WriteFrame(frame))
				}
				err := <-result
				require.ErrorIs(t, err, rpc.ErrProtocol)
				require.Equal(t, c.unknown, errors.Is(err, api.ErrUnknownOutcome))
				<-caller.Done()
			})
		})
	}
	// A server that sends more than was granted, or ends a stream as if it were none.
	for name, more := range map[string][]byte{"beyond grant": append([]byte{36, 1, 5}, 0, 0, 0, 0, 1), "result": {32, 1, 1, 1}} {
		t.Run("stream/"+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				caller, events, far := streaming(t)
				for range 5000 {
					if far.WriteFrame(more) != nil {
						break
					}
				}
				<-caller.Done()
				require.ErrorIs(t, caller.Err(), rpc.ErrProtocol)
				var err error
				for err == nil {
					_, err = events.Next()
				}
				require.ErrorIs(t, err, rpc.ErrProtocol)
			})
		})
	}
}

// TestSnapshotSize has servers whose snapshots are not as long as they say.
func TestSnapshotSize(t *testing.T) {
	for name, c := range map[string]struct {
		frame []byte
		want  error
	}{
		"short":    {[]byte{37, 1, 3, 1, 1, 5, 38, 1, 2, 'a', 'b', 39, 1, 0}, io.ErrUnexpectedEOF},
		"done":     {[]byte{37, 1, 3, 1, 1, 5, 38, 1, 2, 'a', 'b', 34, 1, 0}, io.ErrUnexpectedEOF},
		"long":     {[]byte{37, 1, 3, 1, 1, 1, 38, 1, 2, 'a', 'b', 39, 1, 0}, rpc.ErrProtocol},
		"pulse in": {[]byte{37, 1, 3, 1, 1, 5, 36, 1, 5, 0, 0, 0, 0, 1}, rpc.ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, events, far := streaming(t)
				require.NoError(t, far.WriteFrame(c.frame))
				event, err := events.Next()
				require.NoError(t, err)
				go func() { // the cancel of a stream that is given up
					_, _ = far.ReadFrame()
				}()
				_, err = io.ReadAll(event.Snapshot.Data)
				require.ErrorIs(t, err, c.want)
			})
		})
	}
}

// FuzzServe sends anything to a server: it ends with the connection, and does not panic.
func FuzzServe(f *testing.F) {
	f.Add([]byte{3, 1, 0, 4, 2, 0, 5, 3, 3, 1, 100, 100, 6, 4, 2, 100, 100, 7, 3, 0, 8, 4, 2, 1, 1, 9, 5, 0})
	f.Fuzz(func(t *testing.T, frame []byte) {
		near, far := rpctest.Pipe()
		served := make(chan error, 1)
		go func() { served <- rpc.Serve(t.Context(), far, rpctest.New(a).Peer(a)) }()
		require.NoError(t, near.WriteFrame([]byte("zkrl\x01")))
		_, err := near.ReadFrame()
		require.NoError(t, err)
		_ = near.WriteFrame(frame)
		near.Close()
		if err := <-served; err != nil && !errors.Is(err, io.ErrClosedPipe) {
			require.ErrorIs(t, err, rpc.ErrProtocol)
		}
	})
}
