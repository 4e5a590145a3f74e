package rpc_test

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/rpc/rpctest"
)

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
		"name too long": {good, append([]byte{10, 1, 0x83, 0x10, 0x81, 0x10}, make([]byte, 2049)...)},
		"one name":      {good, {11, 1, 2, 1, 'x'}},
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
				require.ErrorIs(t, <-served, wire.ErrProtocol)
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
				require.ErrorIs(t, err, wire.ErrProtocol)
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
				require.ErrorIs(t, caller.Err(), wire.ErrProtocol)
				var err error
				for err == nil {
					_, err = events.Next()
				}
				require.ErrorIs(t, err, wire.ErrProtocol)
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
		"long":     {[]byte{37, 1, 3, 1, 1, 1, 38, 1, 2, 'a', 'b', 39, 1, 0}, wire.ErrProtocol},
		"pulse in": {[]byte{37, 1, 3, 1, 1, 5, 36, 1, 5, 0, 0, 0, 0, 1}, wire.ErrProtocol},
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
			require.ErrorIs(t, err, wire.ErrProtocol)
		}
	})
}
