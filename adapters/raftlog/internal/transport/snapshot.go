package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

const (
	// snapshotChunk is how large the frames of a snapshot are.
	snapshotChunk = 256 << 10
	// snapshotSilence is for how long the sender may send nothing.
	snapshotSilence = 30 * time.Second
	// maxRefusal limits the text by which a snapshot is not taken.
	maxRefusal = 1 << 10
)

// Snapshot sends a snapshot to a peer that SetPeers has named, by a connection of its own,
// and waits until the other side has taken it: nil means that it has called Finish(nil). The
// header and exactly size bytes of the body are sent. It ends with ctx and by Close, unless
// the body's Read blocks. Errors wrap api.ErrInvalid if there is no such peer, api.ErrClosed
// and the cause of ctx.
func (t *Transport) Snapshot(ctx context.Context, to string, header []byte, size int64, body io.Reader) error {
	t.mu.Lock()
	p := t.peers[to]
	switch {
	case t.closing || !t.running:
		t.mu.Unlock()
		return api.ErrClosed
	case p == nil || p.addr == "" || size < 0:
		t.mu.Unlock()
		return fmt.Errorf("%w: a snapshot of %d bytes for peer %q: its address is not known, or the size is wrong",
			api.ErrInvalid, size, to)
	}
	addr := p.addr
	t.group.Add(1)
	t.mu.Unlock()
	defer t.group.Done()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.ctx, func() { cancel(api.ErrClosed) })()
	err := t.sendSnapshot(ctx, addr, to, header, size, body)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case t.ctx.Err() != nil: // ctx is about to end, and the connection was faster
		err = api.ErrClosed
	}
	return fmt.Errorf("raftlog: sending a snapshot to peer %q: %w", to, err)
}

func (t *Transport) sendSnapshot(ctx context.Context, addr, to string, header []byte, size int64, body io.Reader) error {
	conn, err := t.dial(ctx, addr, to, link.PurposeSnapshot)
	if err != nil {
		return err
	}
	if !t.track(conn) {
		return api.ErrClosed
	}
	defer t.release(conn)
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		conn.Close()
	})
	defer func() {
		if !stop() {
			<-interrupted
		}
	}()
	conn.SetTimeouts(0, stall)
	first := binary.BigEndian.AppendUint64(nil, uint64(size))
	if err := conn.WriteFrame(append(first, header...)); err != nil {
		return err
	}
	chunk := make([]byte, min(size, snapshotChunk))
	for left := size; left > 0; {
		chunk = chunk[:min(left, snapshotChunk)]
		if _, err := io.ReadFull(body, chunk); err != nil {
			return fmt.Errorf("reading it, %d bytes before its end: %w", left, err)
		}
		if err := conn.WriteFrame(chunk); err != nil {
			// The other side may have said why it does not want more.
			conn.SetTimeouts(time.Second, stall)
			if answer, readErr := conn.ReadFrame(); readErr == nil && len(answer) > 0 {
				return fmt.Errorf("it was rejected: %s", answer)
			}
			return err
		}
		left -= int64(len(chunk))
	}
	answer, err := conn.ReadFrame()
	switch {
	case err != nil:
		return fmt.Errorf("wait for its acceptance: %w", err)
	case len(answer) > 0:
		return fmt.Errorf("it was rejected: %s", answer)
	}
	return nil
}

// Incoming is a snapshot that a peer sends. One goroutine may use it.
type Incoming struct {
	Header []byte
	Size   int64
	conn   *link.Conn
	left   int64
	rest   []byte
}

// ReceiveSnapshot begins to receive what the other side's Snapshot sends, on a connection
// that OnSnapshot has got.
func ReceiveSnapshot(conn *link.Conn) (*Incoming, error) {
	conn.SetTimeouts(snapshotSilence, stall)
	first, err := conn.ReadFrame()
	if err != nil {
		return nil, fmt.Errorf("raftlog: receiving a snapshot: %w", err)
	}
	if len(first) < 8 || first[0] > 127 {
		return nil, errors.New("raftlog: receiving a snapshot: it does not begin as one")
	}
	size := int64(binary.BigEndian.Uint64(first))
	return &Incoming{Header: first[8:], Size: size, left: size, conn: conn}, nil
}

// Read reads the snapshot's body. After Size bytes it returns io.EOF; if the connection ends
// before, io.ErrUnexpectedEOF or another error.
func (i *Incoming) Read(p []byte) (int, error) {
	if i.left == 0 {
		return 0, io.EOF
	}
	if len(i.rest) == 0 {
		frame, err := i.conn.ReadFrame()
		switch {
		case err == io.EOF:
			return 0, io.ErrUnexpectedEOF
		case err != nil:
			return 0, err
		case len(frame) == 0 || int64(len(frame)) > i.left:
			return 0, fmt.Errorf("raftlog: receiving a snapshot: %d bytes, where %d are left", len(frame), i.left)
		}
		i.rest = frame
	}
	n := copy(p, i.rest)
	i.rest = i.rest[n:]
	i.left -= int64(n)
	return n, nil
}

// Finish tells the sender that the snapshot was taken, or why not, and closes the
// connection. Its error says that the sender may not know.
func (i *Incoming) Finish(err error) error {
	defer i.conn.Close()
	text := ""
	switch {
	case err != nil:
		text = err.Error()
		text = "refused: " + text[:min(len(text), maxRefusal)]
	case i.left > 0:
		return fmt.Errorf("raftlog: receiving a snapshot: finished %d bytes before its end", i.left)
	}
	return i.conn.WriteFrame([]byte(text))
}
