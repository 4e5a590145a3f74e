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
	// snapshotChunk is the size of the frames in which a snapshot is sent.
	snapshotChunk = 256 << 10
	// snapshotTimeout is the time without new data after which receiving a snapshot fails.
	snapshotTimeout = 30 * time.Second
	// The receiver of a snapshot stores and verifies the snapshot before it answers. The sender waits
	// for answerTimeout, and a second longer for each answerRate bytes of the snapshot, which is less
	// than slow disks process in a second.
	answerTimeout = time.Minute
	answerRate    = 4 << 20
	// maxHeader is the maximum size of the first frame of a snapshot, which must arrive within
	// headerTimeout. The maximum size of the other frames is snapshotChunk.
	maxHeader     = 1 << 20
	headerTimeout = 5 * time.Second
	// maxRefusal is the maximum length of the reason for which the receiver rejects a snapshot.
	maxRefusal = 1 << 10
)

// Snapshot sends a snapshot to a peer of SetPeers on a separate connection, and waits until the
// receiver has installed it: it returns nil if the receiver has called Finish(nil). It sends the header
// and exactly size bytes of the body. It returns when ctx is done or the Transport is closed, unless
// Read of the body blocks. It also returns if the receiver does not answer within a minute, and a
// second for each 4 MiB, after the last byte was sent. Errors wrap api.ErrInvalid if the peer is
// unknown, api.ErrClosed, or the cause of ctx.
func (t *Transport) Snapshot(ctx context.Context, to string, header []byte, size int64, body io.Reader) error {
	t.mu.Lock()
	p := t.peers[to]
	switch {
	case t.closing || !t.running:
		t.mu.Unlock()
		return api.ErrClosed
	case p == nil || len(p.addrs) == 0 || size < 0:
		t.mu.Unlock()
		return fmt.Errorf("%w: send a snapshot of %d bytes to peer %q: the peer has no known address, or the size is negative",
			api.ErrInvalid, size, to)
	}
	addr := p.addrs[0]
	if p.dialed != nil {
		addr = p.dialer.addr
	}
	t.goroutines.Add(1)
	t.mu.Unlock()
	defer t.goroutines.Done()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.ctx, func() { cancel(api.ErrClosed) })()
	err := t.sendSnapshot(ctx, addr, to, header, size, body)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case t.ctx.Err() != nil: // Close of the Transport has closed the connection
		err = api.ErrClosed
	}
	return fmt.Errorf("raftlog: send a snapshot to peer %q: %w", to, err)
}

// sendSnapshot connects to a peer and sends a snapshot, until ctx is done.
func (t *Transport) sendSnapshot(ctx context.Context, addr, to string, header []byte, size int64, body io.Reader) error {
	conn, err := t.dialPeer(ctx, addr, to, link.PurposeSnapshot)
	if err != nil {
		return err
	}
	if !t.trackCloser(conn) {
		return api.ErrClosed
	}
	defer t.closeTracked(conn)
	defer link.CloseWhenDone(ctx, conn)()
	conn.SetTimeouts(0, writeTimeout)
	first := binary.BigEndian.AppendUint64(nil, uint64(size))
	if err := conn.WriteFrame(append(first, header...)); err != nil {
		return err
	}
	chunk := make([]byte, min(size, snapshotChunk))
	for left := size; left > 0; {
		chunk = chunk[:min(left, snapshotChunk)]
		if _, err := io.ReadFull(body, chunk); err != nil {
			return fmt.Errorf("read the snapshot: %d bytes are missing: %w", left, err)
		}
		if err := conn.WriteFrame(chunk); err != nil {
			// If the receiver has rejected the snapshot, it has sent the reason: wait up to a second for it.
			conn.SetTimeouts(time.Second, writeTimeout)
			if answer, readErr := conn.ReadFrame(); readErr == nil && len(answer) > 0 {
				return fmt.Errorf("the receiver has rejected the snapshot: %s", answer)
			}
			return err
		}
		left -= int64(len(chunk))
	}
	conn.SetTimeouts(answerTimeout+time.Duration(size/answerRate)*time.Second, writeTimeout)
	answer, err := conn.ReadFrame()
	switch {
	case err != nil:
		return fmt.Errorf("wait for the answer of the receiver: %w", err)
	case len(answer) > 0:
		return fmt.Errorf("the receiver has rejected the snapshot: %s", answer)
	}
	return nil
}

// Incoming is a snapshot that another peer is sending. Only one goroutine may use an Incoming.
type Incoming struct {
	Header    []byte
	Size      int64
	conn      *link.Conn
	remaining int64
	unread    []byte
}

// ReceiveSnapshot receives the header of a snapshot on a connection that the Transport has passed to
// OnSnapshot.
func ReceiveSnapshot(conn *link.Conn) (*Incoming, error) {
	conn.LimitFrames(link.FrameLimits{Max: maxHeader})
	conn.SetTimeouts(headerTimeout, writeTimeout)
	first, err := conn.ReadFrame()
	if err != nil {
		return nil, fmt.Errorf("raftlog: receive a snapshot: %w", err)
	}
	if len(first) < 8 || first[0] > 127 {
		return nil, errors.New("raftlog: receive a snapshot: the first frame is invalid")
	}
	conn.SetTimeouts(snapshotTimeout, writeTimeout)
	size := int64(binary.BigEndian.Uint64(first))
	return &Incoming{Header: first[8:], Size: size, remaining: size, conn: conn}, nil
}

// Read reads the body of the snapshot. After Size bytes it returns io.EOF. If the connection ends
// before that, it returns io.ErrUnexpectedEOF or another error.
func (i *Incoming) Read(p []byte) (int, error) {
	if i.remaining == 0 {
		return 0, io.EOF
	}
	if len(i.unread) == 0 {
		frame, err := i.conn.ReadFrame()
		switch {
		case err == io.EOF:
			return 0, io.ErrUnexpectedEOF
		case err != nil:
			return 0, err
		case len(frame) == 0 || int64(len(frame)) > i.remaining:
			return 0, fmt.Errorf("raftlog: receive a snapshot: a frame has %d bytes, but only %d bytes remain", len(frame), i.remaining)
		}
		i.unread = frame
	}
	n := copy(p, i.unread)
	i.unread = i.unread[n:]
	i.remaining -= int64(n)
	return n, nil
}

// Abort closes the connection, so that Read returns an error. Any goroutine may call Abort.
func (i *Incoming) Abort() { i.conn.Close() }

// Finish tells the sender that the receiver has installed the snapshot, or has rejected it because of
// err, and closes the connection. If Finish returns an error, the sender may not have received this
// answer.
func (i *Incoming) Finish(err error) error {
	defer i.conn.Close()
	text := ""
	switch {
	case err != nil:
		text = err.Error()
		text = "refused: " + text[:min(len(text), maxRefusal)]
	case i.remaining > 0:
		return fmt.Errorf("raftlog: receive a snapshot: Finish was called before the last %d bytes were read", i.remaining)
	}
	return i.conn.WriteFrame([]byte(text))
}
