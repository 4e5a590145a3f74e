package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// Stream serves the stream that a client requests on a connection from an address. It ends when the client
// closes the connection or has sent nothing for 30 s, or ctx is done. Then it closes the connection. It
// returns the same errors as [Server.Calls].
func (s *Server) Stream(ctx context.Context, conn Conn, address string) error {
	client, busy := s.usage.addClient(address, load{conns: 1, streams: 1})
	defer client.close()
	conn.LimitFrames(link.FrameLimits{Max: maxStreamRequest, Stall: frameStall})
	// Writes have no timeout, because a slow client may stop reading for any length of time. The server
	// detects a lost client by its missing pings.
	conn.SetTimeouts(streamSilence, 0)
	if busy != nil {
		return s.reject(ctx, conn, busy, func([]byte) []byte { return wire.AppendError([]byte{msgError}, busy) })
	}
	var goroutines sync.WaitGroup
	return serveConn(ctx, conn, &goroutines, func(ctx context.Context, cancel context.CancelCauseFunc) error {
		request, err := conn.ReadFrame()
		if err != nil {
			return err
		}
		w := &streamWriter{conn: conn}
		goroutines.Go(func() { cancel(readPings(conn)) })
		if err := s.serveStream(ctx, w, request); err != nil {
			if errors.Is(err, wire.ErrProtocol) {
				return err
			}
			w.writeMessage(msgError, func(b []byte) []byte { return wire.AppendError(b, err) })
			if err := w.flush(); err != nil {
				return err
			}
		}
		// The client has received all messages: wait until it closes the connection.
		<-ctx.Done()
		return nil
	})
}

// readPings reads and ignores pings, until the connection ends.
func readPings(conn Conn) error {
	for {
		frame, err := conn.ReadFrame()
		if err != nil {
			return err
		}
		if len(frame) > 0 {
			return wire.Violation("a second request on the connection of a stream")
		}
	}
}

// maxStreamRequest is the maximum size of a frame that the client of a stream sends.
const maxStreamRequest = 4 << 10

func (s *Server) serveStream(ctx context.Context, w *streamWriter, request []byte) error {
	d := wire.Decoder{B: request}
	switch kind := d.Byte("kind of a request"); kind {
	case msgEntries:
		from, err := decodeIndex(d.B)
		if err != nil {
			return err
		}
		return s.service.Entries(ctx, from, w.writeEvents)
	case msgSnapshot:
		if err := d.End(); err != nil {
			return err
		}
		snapshot, err := s.service.Snapshot(ctx)
		if err != nil {
			return err
		}
		return w.writeSnapshot(&snapshot)
	default:
		return wire.Violation("unknown kind of stream: %d", kind)
	}
}

// streamWriter writes the messages of a stream. After an error, its methods do nothing.
type streamWriter struct {
	conn   Conn
	buffer []byte
	err    error
}

func (w *streamWriter) writeMessage(kind byte, body func([]byte) []byte) {
	if w.err == nil {
		w.buffer = body(append(w.buffer[:0], kind))
		w.err = w.conn.Buffer(w.buffer)
	}
	if cap(w.buffer) > batchBytes {
		w.buffer = nil
	}
}

func (w *streamWriter) flush() error {
	if w.err == nil {
		w.err = w.conn.Flush()
	}
	return w.err
}

// writeEvents writes the given events to the stream.
func (w *streamWriter) writeEvents(events []api.Event) error {
	for _, event := range events {
		switch {
		case event.Entry != nil:
			if len(event.Entry.Data) > wire.MaxData {
				return fmt.Errorf("%w: entry %d has %d bytes, the limit is %d", api.ErrTooLarge, event.Entry.Index, len(event.Entry.Data), wire.MaxData)
			}
			w.writeMessage(msgEntry, func(b []byte) []byte { return appendEntry(b, event.Entry) })
		case event.Snapshot != nil:
			if err := w.writeSnapshot(event.Snapshot); err != nil {
				return err
			}
		case event.Progress != nil:
			if err := wire.CheckPeers(event.Progress.Leader); err != nil {
				return err
			}
			w.writeMessage(msgProgress, func(b []byte) []byte { return appendProgress(b, event.Progress) })
		}
	}
	return w.flush()
}

// chunkSize is the size of the parts in which the server sends a snapshot.
const chunkSize = 64 << 10

// writeSnapshot writes a snapshot to the stream, and closes the snapshot's data.
func (w *streamWriter) writeSnapshot(s *api.SnapshotStream) error {
	defer s.Data.Close()
	if s.Size < 0 {
		return fmt.Errorf("the snapshot at index %d has the invalid size %d", s.Index, s.Size)
	}
	w.writeMessage(msgSnapshotHeader, func(b []byte) []byte {
		return appendSnapshotHeader(b, snapshotHeader{s.Index, s.Term, s.Size})
	})
	chunk := make([]byte, min(s.Size, chunkSize))
	for left := s.Size; left > 0 && w.err == nil; {
		n, err := s.Data.Read(chunk[:min(left, int64(len(chunk)))])
		if n > 0 {
			w.writeMessage(msgChunk, func(b []byte) []byte { return append(b, chunk[:n]...) })
			left -= int64(n)
		}
		if err != nil && left > 0 {
			return fmt.Errorf("read the snapshot at index %d: %d bytes missing: %w", s.Index, left, err)
		}
	}
	return w.flush()
}
