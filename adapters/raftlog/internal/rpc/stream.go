package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// ErrQuiet is returned by a stream whose server has sent nothing for the time patience (see Entries).
var ErrQuiet = errors.New("no message from the peer")

const (
	// pingInterval is the interval at which the client of a stream sends empty frames.
	pingInterval = 10 * time.Second
	// streamSilence is the time after which the server ends a stream whose client has sent no frame.
	streamSilence = 30 * time.Second
	// pingStall is the time after which the client closes the connection of a stream on which it cannot
	// write.
	pingStall = 10 * time.Second
)

// Stream is a stream of events that a client reads from a connection. Only one goroutine at a time may
// use a Stream, but any goroutine may call Close. The Stream reads from the connection only while Next
// is called or the data of a snapshot is read, so that it stores at most one event.
type Stream struct {
	conn       Conn
	patience   time.Duration
	ctx        context.Context
	cancel     context.CancelCauseFunc
	goroutines sync.WaitGroup
	data       *snapshotData // the data of the last snapshot that Next has returned
}

// Entries requests the log of the peer at the other end of conn, from the index from on. If patience is
// not zero, reading from the stream returns [ErrQuiet] when no data has arrived for that time. The
// stream owns conn. It ends when ctx is done, and the caller must close it. Next returns the errors of
// the server.
func Entries(ctx context.Context, conn Conn, from uint64, patience time.Duration) *Stream {
	return newStream(ctx, conn, append([]byte{msgEntries}, encodeIndex(from)...), patience)
}

// Snapshot requests the newest snapshot of the peer at the other end of conn. The snapshot owns conn;
// after an error, conn is closed. Reading the data fails when ctx is done. The patience is the same as
// for Entries.
func Snapshot(ctx context.Context, conn Conn, patience time.Duration) (api.SnapshotStream, error) {
	s := newStream(ctx, conn, []byte{msgSnapshot}, patience)
	event, err := s.Next()
	if err == nil && event.Snapshot == nil {
		err = wire.Violation("the server has sent an entry instead of the requested snapshot")
	}
	if err != nil {
		s.Close()
		return api.SnapshotStream{}, err
	}
	event.Snapshot.Data = ownedData{event.Snapshot.Data, s}
	return *event.Snapshot, nil
}

// ownedData is the data of a snapshot, and closes the stream of the snapshot when it is closed.
type ownedData struct {
	io.ReadCloser
	stream *Stream
}

func (o ownedData) Close() error { return o.stream.Close() }

func newStream(ctx context.Context, conn Conn, request []byte, patience time.Duration) *Stream {
	s := &Stream{conn: conn, patience: patience}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	conn.SetTimeouts(patience, pingStall)
	s.goroutines.Go(func() {
		<-s.ctx.Done()
		conn.Close()
	})
	s.goroutines.Go(func() { s.sendPings(request) })
	return s
}

// sendPings sends the request of the stream, and then empty frames until the stream ends.
func (s *Stream) sendPings(request []byte) {
	ticker := time.NewTicker(pingInterval)
	defer ticker.Stop()
	for frame := request; ; frame = nil {
		err := s.conn.Buffer(frame)
		if err == nil {
			err = s.conn.Flush()
		}
		if err != nil {
			s.cancel(fmt.Errorf("%w: %w", ErrLost, err))
			return
		}
		select {
		case <-ticker.C:
		case <-s.ctx.Done():
			return
		}
	}
}

// Close ends the stream. Pending and later calls of Next return errors that wrap
// [api.ErrClosed].
func (s *Stream) Close() error {
	s.cancel(fmt.Errorf("the stream of entries: %w", api.ErrClosed))
	s.goroutines.Wait()
	return nil
}

// Next waits for the next event and returns it. If the previous event was a snapshot, its data must be
// read completely or closed before, otherwise the error wraps [api.ErrInvalid]. After any other error
// the stream has ended.
func (s *Stream) Next() (api.Event, error) {
	if d := s.data; d != nil && (d.left > 0 || len(d.chunk) > 0) {
		if !d.closed {
			return api.Event{}, fmt.Errorf("%w: the previous snapshot is neither read completely nor closed", api.ErrInvalid)
		}
		for d.left > 0 {
			if err := d.receiveChunk(); err != nil {
				return api.Event{}, err
			}
		}
	}
	kind, body, err := s.readMessage()
	if err != nil {
		return api.Event{}, err
	}
	var event api.Event
	switch kind {
	case msgEntry:
		event.Entry, err = decodeEntry(body)
	case msgProgress:
		event.Progress, err = decodeProgress(body)
	case msgSnapshotHeader:
		var h snapshotHeader
		h, err = decodeSnapshotHeader(body)
		s.data = &snapshotData{stream: s, left: h.size, index: h.index}
		event.Snapshot = &api.SnapshotStream{Index: h.index, Term: h.term, Size: h.size, Data: s.data}
	default:
		err = wire.Violation("a message in a stream cannot have kind %d", kind)
	}
	if err != nil {
		return api.Event{}, s.endWith(err)
	}
	return event, nil
}

// endWith ends the stream because of err, unless it has already ended. It returns the reason why the
// stream has ended.
func (s *Stream) endWith(err error) error {
	s.cancel(err)
	return context.Cause(s.ctx)
}

// readMessage returns the next message of the stream.
func (s *Stream) readMessage() (kind byte, body []byte, err error) {
	frame, err := s.conn.ReadFrame()
	if s.ctx.Err() != nil {
		return 0, nil, context.Cause(s.ctx)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, nil, s.endWith(fmt.Errorf("%w for %v", ErrQuiet, s.patience))
	}
	if err != nil {
		return 0, nil, s.endWith(fmt.Errorf("%w: %w", ErrLost, err))
	}
	d := wire.Decoder{B: frame}
	kind = d.Byte("kind of a message")
	if d.Err == nil && kind == msgError {
		remote := d.Error()
		if err := d.End(); err != nil {
			return 0, nil, s.endWith(err)
		}
		return 0, nil, s.endWith(remote)
	}
	if d.Err != nil {
		return 0, nil, s.endWith(d.Err)
	}
	return kind, d.B, nil
}

// snapshotData reads the data of a snapshot from a stream.
type snapshotData struct {
	stream *Stream
	index  uint64
	left   int64  // the number of bytes that have not arrived yet
	chunk  []byte // the bytes that have arrived and were not read yet
	closed bool
}

// receiveChunk waits for the next part of the data.
func (d *snapshotData) receiveChunk() error {
	kind, body, err := d.stream.readMessage()
	switch {
	case errors.Is(err, io.EOF):
		// This error must not wrap io.EOF, because readers would take the part of the data for the
		// whole.
		return fmt.Errorf("read the snapshot at index %d: %d bytes missing: %w: %w", d.index, d.left, ErrLost, io.ErrUnexpectedEOF)
	case err != nil:
		return fmt.Errorf("read the snapshot at index %d: %d bytes missing: %w", d.index, d.left, err)
	case kind != msgChunk || len(body) == 0 || len(body) > maxChunk || int64(len(body)) > d.left:
		return d.stream.endWith(wire.Violation("invalid data of the snapshot at index %d", d.index))
	}
	d.chunk = body
	d.left -= int64(len(body))
	return nil
}

func (d *snapshotData) Read(p []byte) (int, error) {
	if d.closed {
		return 0, fmt.Errorf("read the snapshot at index %d: %w", d.index, api.ErrClosed)
	}
	if len(d.chunk) == 0 && len(p) > 0 {
		if d.left == 0 {
			return 0, io.EOF
		}
		if err := d.receiveChunk(); err != nil {
			return 0, err
		}
	}
	n := copy(p, d.chunk)
	d.chunk = d.chunk[n:]
	return n, nil
}

// Close implements [io.Closer]. The next call of Stream.Next skips the remaining data.
func (d *snapshotData) Close() error {
	d.closed = true
	return nil
}
