package rpc_test

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc/rpctest"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// streaming is a caller that has asked for entries, and the end of a server that has answered
// with no more than a hello.
func streaming(t *testing.T) (*rpc.Caller, rpc.Events, *rpctest.End) {
	near, far := rpctest.Pipe()
	caller := rpc.NewCaller(near)
	t.Cleanup(func() { caller.Close() })
	events, err := caller.Entries(t.Context(), 1)
	require.NoError(t, err)
	drain(t, far, 2)
	require.NoError(t, far.WriteFrame([]byte("zkrl\x01")))
	return caller, events, far
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
			require.Equal(t, &api.Progress{Commit: 15, Term: 1, Leader: a, Fresh: true}, event.Progress)
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
