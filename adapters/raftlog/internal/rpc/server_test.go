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
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/rpctest"
)

// frame returns the message of a call, or a reply to it.
func frame(kind, number byte, body ...byte) []byte {
	return append([]byte{kind, 0, 0, 0, 0, 0, 0, 0, number}, body...)
}

// TestViolations has callers and servers that violate the protocol.
func TestViolations(t *testing.T) {
	for name, frames := range map[string][][]byte{
		"other service": {[]byte("GET / HTTP/1.1\r\n")},
		"no message":    {{1}},
		"unknown kind":  {frame(31, 1)},
		"no number":     {frame(4, 0)},
		"call twice":    {frame(4, 7), frame(4, 7)},
		"name too long": {frame(5, 1, append([]byte{0x81, 0x10}, make([]byte, 2049)...)...)},
		"one name":      {frame(6, 1, 1, 'x')},
		"short propose": {frame(1, 1, 0, 0, 0)},
		"stream":        {frame(32, 1)},
	} {
		t.Run("server/"+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := rpctest.Pipe()
				go func() {
					_, _ = near.ReadFrame()
				}()
				served := make(chan error, 1)
				go func() { served <- rpc.NewServer(rpctest.New(a).Peer(a)).Calls(t.Context(), far) }()
				for _, frame := range frames {
					require.NoError(t, near.WriteFrame(frame))
				}
				require.ErrorIs(t, <-served, wire.ErrProtocol)
			})
		})
	}
	for name, frames := range map[string][][]byte{
		"call":            {frame(1, 1)},
		"nothing":         {{}},
		"no index":        {{32}},
		"index and more":  {{32, 1, 1}},
		"snapshot of":     {{33, 1}},
		"second request":  {{32, 1}, {32, 1}},
		"large index":     {append([]byte{32}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1)},
		"reply":           {{17, 0, 0, 0, 0}},
		"other protocol":  {[]byte("GET / HTTP/1.1\r\n")},
		"request of call": {frame(3, 1)},
	} {
		t.Run("server of stream/"+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := rpctest.Pipe()
				served := make(chan error, 1)
				go func() { served <- rpc.NewServer(rpctest.New(a).Peer(a)).Stream(t.Context(), far, "client") }()
				for _, frame := range frames {
					require.NoError(t, near.WriteFrame(frame))
				}
				require.ErrorIs(t, <-served, wire.ErrProtocol)
			})
		})
	}
	for name, frames := range map[string][][]byte{
		"no message":       {{17}},
		"not asked":        {frame(16, 9, 1)},
		"entry for update": {frame(48, 1)},
		"no index":         {frame(16, 1)},
		"no error":         {frame(17, 1)},
	} {
		t.Run("caller/"+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := rpctest.Pipe()
				caller := rpc.NewCaller(near)
				defer caller.Close()
				result := proposing(t.Context(), caller)
				drain(t, far, 1)
				for _, frame := range frames {
					require.NoError(t, far.WriteFrame(frame))
				}
				err := <-result
				require.ErrorIs(t, err, wire.ErrProtocol)
				require.ErrorIs(t, err, api.ErrUnknownOutcome)
				<-caller.Done()
			})
		})
	}
	for name, message := range map[string][]byte{
		"result": frame(16, 1, 1), "nothing": {}, "no progress": {49}, "chunk": {51, 'x'}, "no error": {17}, "half an entry": {48, 1},
	} {
		t.Run("stream/"+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				events, far := streaming(t)
				go func() { _ = far.WriteFrame(message) }()
				for range 2 {
					_, err := events.Next()
					require.ErrorIs(t, err, wire.ErrProtocol)
				}
			})
		})
	}
}

// TestSnapshotSize has servers that send less or more data than they have announced.
func TestSnapshotSize(t *testing.T) {
	for name, c := range map[string]struct {
		frames [][]byte
		want   error
	}{
		"short":       {[][]byte{{50, 1, 1, 5}, {51, 'a', 'b'}}, io.ErrUnexpectedEOF},
		"long":        {[][]byte{{50, 1, 1, 1}, {51, 'a', 'b'}}, wire.ErrProtocol},
		"empty":       {[][]byte{{50, 1, 1, 5}, {51}}, wire.ErrProtocol},
		"progress in": {[][]byte{{50, 1, 1, 5}, {49, 0, 0, 0, 0, 1}}, wire.ErrProtocol},
		"error in":    {[][]byte{{50, 1, 1, 5}, wire.AppendError([]byte{17}, api.ErrFault)}, api.ErrFault},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				events, far := streaming(t)
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

// fuzz sends any frame to a server: it ends with the connection, and does not panic.
func fuzz(f *testing.F, serve func(s *rpc.Server, t *testing.T, far *rpctest.End) error) {
	f.Fuzz(func(t *testing.T, frame []byte) {
		near, far := rpctest.Pipe()
		served := make(chan error, 1)
		go func() { served <- serve(rpc.NewServer(rpctest.New(a).Peer(a)), t, far) }()
		_ = near.WriteFrame(frame)
		near.Close()
		if err := <-served; err != nil && !errors.Is(err, io.ErrClosedPipe) {
			require.ErrorIs(t, err, wire.ErrProtocol)
		}
	})
}

func FuzzCalls(f *testing.F) {
	for kind := range byte(9) {
		f.Add(frame(kind, 1, 1, 100))
	}
	fuzz(f, func(s *rpc.Server, t *testing.T, far *rpctest.End) error { return s.Calls(t.Context(), far) })
}

func FuzzStream(f *testing.F) {
	f.Add([]byte{32, 1})
	f.Add([]byte{33})
	fuzz(f, func(s *rpc.Server, t *testing.T, far *rpctest.End) error { return s.Stream(t.Context(), far, "client") })
}
