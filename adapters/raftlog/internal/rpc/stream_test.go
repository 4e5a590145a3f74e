package rpc_test

import (
	"context"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/rpctest"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// streaming returns a stream of entries, and the server's end of its connection, which has
// read the request.
func streaming(t *testing.T) (*rpc.Stream, *rpctest.End) {
	near, far := rpctest.Pipe()
	stream := rpc.Entries(t.Context(), near, 1, 0)
	t.Cleanup(func() { stream.Close() })
	drain(t, far, 1)
	return stream, far
}

func TestStream(t *testing.T) {
	inBubble(t, func(t *testing.T, s *setup) {
		s.cluster.Append(10, 100)
		s.cluster.Compact(make([]byte, 300_000))
		s.cluster.Append(5, 100)
		near, far := s.dial()
		events := rpc.Entries(t.Context(), near, 1, 0)
		defer events.Close()
		event, err := events.Next()
		require.NoError(t, err)
		require.EqualValues(t, 10, event.Snapshot.Index)
		_, err = events.Next()
		require.ErrorIs(t, err, api.ErrInvalid, "the snapshot was not read")
		data, err := io.ReadAll(io.LimitReader(event.Snapshot.Data, 299_999))
		require.NoError(t, err)
		require.Len(t, data, 299_999)
		_, err = events.Next()
		require.ErrorIs(t, err, api.ErrInvalid, "the last byte was not read")
		data, err = io.ReadAll(event.Snapshot.Data)
		require.NoError(t, err)
		require.Len(t, data, 1)
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
		other := s.entries(t.Context(), 1)
		event, err = other.Next()
		require.NoError(t, err)
		require.NoError(t, event.Snapshot.Data.Close())
		event, err = other.Next()
		require.NoError(t, err)
		require.EqualValues(t, 11, event.Entry.Index)
		require.NoError(t, other.Close())
		_, err = other.Next()
		require.ErrorIs(t, err, api.ErrClosed)

		near, _ = s.dial()
		whole, err := rpc.Snapshot(t.Context(), near)
		require.NoError(t, err)
		require.EqualValues(t, 10, whole.Index)
		data, err = io.ReadAll(whole.Data)
		require.NoError(t, err)
		require.Len(t, data, 300_000)
		require.NoError(t, whole.Data.Close())

		far.Close()
		_, err = events.Next()
		require.ErrorIs(t, err, rpc.ErrLost)
		require.NotErrorIs(t, err, api.ErrUnknownOutcome)
	})
}

// TestBackPressure has a stream that is not read for longer than any timeout: the server stops
// reading its log, and continues with the stream later.
func TestBackPressure(t *testing.T) {
	for size, all := range map[int]int{1: 13_000, 10_000: 2_000} { // by count, by bytes
		inBubble(t, func(t *testing.T, s *setup) {
			s.cluster.Append(all, size)
			events := s.entries(t.Context(), 1)
			synctest.Wait()
			stopped := s.peer.Read()
			require.Less(t, stopped, uint64(all/2))
			require.Greater(t, stopped, uint64(100))
			_, err := s.caller.Propose(t.Context(), requestid.New(), nil)
			require.NoError(t, err)
			require.Equal(t, stopped, s.peer.Read())
			time.Sleep(time.Hour)
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
		events := s.entries(ctx, 1)
		_, err := events.Next()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, events.Close())

		near, _ := s.dial()
		quiet := rpc.Entries(t.Context(), near, 1, time.Minute)
		begun := time.Now()
		_, err = quiet.Next()
		require.ErrorIs(t, err, rpc.ErrQuiet)
		require.Equal(t, time.Minute, time.Since(begun))
		require.NoError(t, quiet.Close())

		open := s.entries(t.Context(), 1)
		go func() {
			time.Sleep(time.Second)
			open.Close()
		}()
		_, err = open.Next()
		require.ErrorIs(t, err, api.ErrClosed)

		s.peer.Before(func(context.Context, string) error { return api.ErrCompacted })
		refused := s.entries(t.Context(), 1)
		_, err = refused.Next()
		require.ErrorIs(t, err, api.ErrCompacted)
		near, _ = s.dial()
		_, err = rpc.Snapshot(t.Context(), near)
		require.ErrorIs(t, err, api.ErrCompacted)
	})
}

// TestLostClient: the server ends a stream whose client has sent nothing for a while.
func TestLostClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := rpctest.New(a)
		near, far := rpctest.Pipe()
		served := make(chan error, 1)
		go func() { served <- rpc.NewServer(cluster.Peer(a)).Stream(t.Context(), far, "client") }()
		require.NoError(t, near.WriteFrame([]byte{32, 1})) // the stream of entries
		require.ErrorIs(t, <-served, os.ErrDeadlineExceeded)
	})
}

// TestTooManyStreams: the limit of streams does not concern calls and other clients.
func TestTooManyStreams(t *testing.T) {
	inBubble(t, func(t *testing.T, s *setup) {
		for i := range 65 {
			events := s.entries(t.Context(), 1)
			defer events.Close()
			_, err := events.Next()
			if i < 64 {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, api.ErrBusy)
			}
		}
		_, err := s.caller.Info(t.Context())
		require.NoError(t, err)
		near, far := rpctest.Pipe()
		s.streams.Go(func() { _ = s.server.Stream(s.ctx, far, "other") })
		other := rpc.Entries(t.Context(), near, 1, 0)
		defer other.Close()
		_, err = other.Next()
		require.NoError(t, err)
	})
}
