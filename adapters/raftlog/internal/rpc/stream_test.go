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
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

func TestStream_ReturnsEntriesAndSnapshots(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		h.cluster.Append(10, 100)
		h.cluster.Compact(make([]byte, 300_000))
		h.cluster.Append(5, 100)
		near, far := h.dialStream()
		events := rpc.Entries(t.Context(), near, 1, 0)
		defer events.Close()
		event, err := events.Next()
		require.NoError(t, err)
		require.EqualValues(t, 10, event.Snapshot.Index)
		_, err = events.Next()
		require.ErrorIs(t, err, api.ErrInvalid, "the snapshot was skipped")
		data, err := io.ReadAll(io.LimitReader(event.Snapshot.Data, 299_999))
		require.NoError(t, err)
		require.Len(t, data, 299_999)
		_, err = events.Next()
		require.ErrorIs(t, err, api.ErrInvalid, "the last byte of the snapshot was skipped")
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
			require.Equal(t, &api.Progress{Commit: 15, Term: 1, Leader: peerA, Fresh: true}, event.Progress)
		}
		// A second stream closes the data of its snapshot before it has read all of it.
		other := h.requestEntries(t.Context(), 1)
		event, err = other.Next()
		require.NoError(t, err)
		require.NoError(t, event.Snapshot.Data.Close())
		event, err = other.Next()
		require.NoError(t, err)
		require.EqualValues(t, 11, event.Entry.Index)
		require.NoError(t, other.Close())
		_, err = other.Next()
		require.ErrorIs(t, err, api.ErrClosed)

		near, _ = h.dialStream()
		whole, err := rpc.Snapshot(t.Context(), near, time.Minute)
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

// TestStream_ReturnsReasonOfItsEnd checks that a stream ends because of its context, its patience, Close or an
// error of the server, and that Next returns this reason.
func TestStream_ReturnsReasonOfItsEnd(t *testing.T) {
	runInBubble(t, func(t *testing.T, h *harness) {
		h.peer.Silent(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		events := h.requestEntries(ctx, 1)
		_, err := events.Next()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, events.Close())

		near, _ := h.dialStream()
		quiet := rpc.Entries(t.Context(), near, 1, time.Minute)
		start := time.Now()
		_, err = quiet.Next()
		require.ErrorIs(t, err, rpc.ErrQuiet)
		require.Equal(t, time.Minute, time.Since(start))
		require.NoError(t, quiet.Close())

		open := h.requestEntries(t.Context(), 1)
		go func() {
			time.Sleep(time.Second)
			open.Close()
		}()
		_, err = open.Next()
		require.ErrorIs(t, err, api.ErrClosed)

		h.peer.Before(func(context.Context, string) error { return api.ErrCompacted })
		refused := h.requestEntries(t.Context(), 1)
		_, err = refused.Next()
		require.ErrorIs(t, err, api.ErrCompacted)
		near, _ = h.dialStream()
		_, err = rpc.Snapshot(t.Context(), near, 0)
		require.ErrorIs(t, err, api.ErrCompacted)
	})
}

// TestStream_RejectsInvalidSnapshotData checks that reading a snapshot returns an error if the server sends less or
// more data than it has announced, or another message in between.
func TestStream_RejectsInvalidSnapshotData(t *testing.T) {
	for name, c := range map[string]struct {
		frames [][]byte
		want   error
	}{
		"too short":            {[][]byte{{50, 1, 1, 5}, {51, 'a', 'b'}}, io.ErrUnexpectedEOF},
		"too long":             {[][]byte{{50, 1, 1, 1}, {51, 'a', 'b'}}, wire.ErrProtocol},
		"empty part":           {[][]byte{{50, 1, 1, 5}, {51}}, wire.ErrProtocol},
		"progress in the data": {[][]byte{{50, 1, 1, 5}, {49, 0, 0, 0, 0, 1}}, wire.ErrProtocol},
		"error in the data":    {[][]byte{{50, 1, 1, 5}, wire.AppendError([]byte{17}, api.ErrFault)}, api.ErrFault},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				events, far := openStream(t)
				go func() {
					for _, frame := range c.frames {
						_ = far.WriteFrame(frame)
					}
					far.Close()
				}()
				event, err := events.Next()
				require.NoError(t, err)
				_, err = io.ReadAll(event.Snapshot.Data)
				require.ErrorIs(t, err, c.want)
			})
		})
	}
}

// TestStream_FailsIfServerViolatesProtocol checks that Next returns ErrProtocol when the server
// violates the protocol.
func TestStream_FailsIfServerViolatesProtocol(t *testing.T) {
	for name, message := range map[string][]byte{
		"result of a call": callFrame(16, 1, 1), "empty message": {}, "progress without content": {49}, "part of no snapshot": {51, 'x'}, "error without content": {17}, "half an entry": {48, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				events, far := openStream(t)
				go func() { _ = far.WriteFrame(message) }()
				for range 2 {
					_, err := events.Next()
					require.ErrorIs(t, err, wire.ErrProtocol)
				}
			})
		})
	}
}
