package link

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// MaxFrame is the maximum size of a frame in bytes.
const MaxFrame = 64 << 20

const (
	// maxHandshakeFrame is the maximum size of a frame of the handshake in bytes.
	maxHandshakeFrame = 4 << 10
	readBufferSize    = 16 << 10
	writeBufferSize   = 64 << 10
	// maxWrite is the maximum number of bytes of one write, to which the write timeout applies. So a
	// slow connection that makes progress does not fail.
	maxWrite = 256 << 10
	// firstAllocation is the number of bytes that ReadFrame allocates for a frame before any of its bytes has
	// arrived, so that a process cannot occupy much memory by sending only the length of a frame. If
	// FrameLimits.Reserve is set, it is firstReserved for frames up to FrameLimits.Free, and skippedHead for
	// larger ones.
	firstAllocation = 1 << 20
	firstReserved   = 4 << 10
	// framePart is the size of the parts of a frame to which FrameLimits.Stall applies.
	framePart = 64 << 10
	// skippedHead is the number of bytes that ReadFrame returns of a frame that it has skipped.
	skippedHead = 64
)

// FrameLimits limits the frames that a connection receives.
type FrameLimits struct {
	// Max is the maximum size of a frame in bytes. It must be at most MaxFrame.
	Max int
	// Stall is the time within which the next 64 KiB of a frame must arrive, or the rest of the frame if that
	// is less. Zero means no limit.
	Stall time.Duration
	// Reserve, which may be nil, is called for each frame that is larger than Free, which is at least
	// 64 bytes. It reserves memory for the frame. If it returns an error, ReadFrame skips the frame,
	// and returns that error and the first 64 bytes of the frame; the connection can still be used.
	Reserve func(size int) error
	Free    int
}

// Conn is a connection whose other side the handshake has authenticated. It carries frames in both
// directions. One goroutine may read while others write. Any goroutine may call Close.
type Conn struct {
	raw    net.Conn // closed by Close, because tls.Conn.Close can block
	stream net.Conn // raw itself, or a *tls.Conn on raw
	remote Hello
	// version is the version of the protocol that both sides use on this connection.
	version byte
	secret  []byte // the secret that both sides have proved to know, or nil
	byPeer  bool   // whether the dialing side has the role of a peer

	reader      *bufio.Reader
	readHead    [4]byte
	limits      FrameLimits
	inPart      bool      // whether a part of a frame is being read
	partEnd     time.Time // when the rest of the part must have arrived; zero until a read waits for it
	hasDeadline bool      // whether stream may still have the read deadline of a part
	readTimeout atomic.Int64

	writeMu      sync.Mutex
	writer       *bufio.Writer
	writeHead    [4]byte
	writeTimeout atomic.Int64
}

func newConn(raw, stream net.Conn) *Conn {
	c := &Conn{raw: raw, stream: stream, limits: FrameLimits{Max: maxHandshakeFrame}}
	c.reader = bufio.NewReaderSize(timedReader{c}, readBufferSize)
	c.writer = bufio.NewWriterSize(timedWriter{c}, writeBufferSize)
	return c
}

// Remote returns the identity of the other side, which the handshake has verified.
func (c *Conn) Remote() Hello { return c.remote }

// Version returns the version of the protocol on this connection: the highest version that both sides
// support. Callers must not send a kind of message that a later version has added.
func (c *Conn) Version() byte { return c.version }

// IsAuthenticatedBy reports whether the secret of the connection is one of the given secrets. It returns
// true if the connection was not authenticated by a secret.
func (c *Conn) IsAuthenticatedBy(s api.Secrets) bool {
	return c.secret == nil || secrets{s.Peers, s.Clients}.contains(c.byPeer, c.secret)
}

// RemoteAddr returns the network address of the other side.
func (c *Conn) RemoteAddr() net.Addr { return c.raw.RemoteAddr() }

// SetTimeouts sets the time after which ReadFrame fails if no data has arrived, and the time after
// which a write fails if the connection has accepted no data. Zero, which is the default, disables a
// timeout. After a timeout the connection cannot be used any more.
func (c *Conn) SetTimeouts(read, write time.Duration) {
	c.readTimeout.Store(int64(read))
	c.writeTimeout.Store(int64(write))
	if read == 0 {
		c.stream.SetReadDeadline(time.Time{})
	}
	if write == 0 {
		c.stream.SetWriteDeadline(time.Time{})
	}
}

// LimitFrames sets the limits of the frames that are received from now on. Only the goroutine that
// reads may call it.
func (c *Conn) LimitFrames(l FrameLimits) { c.limits = l }

// Close closes the connection, and makes pending reads and writes return an error. It does not block,
// and does not flush the buffer. It may be called repeatedly.
func (c *Conn) Close() error { return c.raw.Close() }

// ErrFrameTooLarge is wrapped by the error of ReadFrame if the frame is larger than the limit, which means
// that the other side does not keep to the protocol. It does not wrap [api.ErrTooLarge], with which a peer
// replies to a request that is too large: the frame can come from a foreign server at the address, and a
// client must not report it as such a reply.
var ErrFrameTooLarge = errors.New("the other side has sent a frame that is too large")

// ReadFrame returns the next frame, which the caller may keep. If the frame is larger than the limit,
// the error wraps ErrFrameTooLarge. After any error the connection cannot be used any more, unless
// Reserve has returned the error.
func (c *Conn) ReadFrame() ([]byte, error) {
	if _, err := io.ReadFull(c.reader, c.readHead[:1]); err != nil {
		return nil, err
	}
	if err := c.readPart(c.readHead[1:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(c.readHead[:])
	if uint64(size) > uint64(c.limits.Max) {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrFrameTooLarge, size, c.limits.Max)
	}
	n, first := int(size), firstAllocation
	reserves := c.limits.Reserve != nil && n > c.limits.Free
	switch {
	case reserves:
		first = skippedHead
	case c.limits.Reserve != nil:
		first = firstReserved
	}
	frame := make([]byte, min(n, first))
	for got := 0; ; {
		end := min(len(frame), got+framePart)
		if err := c.readPart(frame[got:end]); err != nil {
			return nil, err
		}
		switch got = end; {
		case got == n:
			return frame, nil
		case got < len(frame):
		case reserves && got == skippedHead:
			if err := c.limits.Reserve(n); err != nil {
				if failed := c.skipBytes(n - got); failed != nil {
					return nil, failed
				}
				return frame, err
			}
			frame = resizeFrame(frame, min(n, framePart))
		case reserves:
			frame = resizeFrame(frame, n)
		default:
			frame = resizeFrame(frame, min(n, 2*got))
		}
	}
}

// resizeFrame returns a copy of frame with the given size.
func resizeFrame(frame []byte, size int) []byte {
	larger := make([]byte, size)
	copy(larger, frame)
	return larger
}

// readPart reads a part of a frame into p, within the time limit for a part.
func (c *Conn) readPart(p []byte) error {
	return c.readPartInTime(func() error {
		_, err := io.ReadFull(c.reader, p)
		return err
	})
}

// skipBytes reads and discards n bytes of a frame.
func (c *Conn) skipBytes(n int) error {
	for n > 0 {
		part := min(n, framePart)
		err := c.readPartInTime(func() error {
			_, err := c.reader.Discard(part)
			return err
		})
		if err != nil {
			return err
		}
		n -= part
	}
	return nil
}

// readPartInTime calls read, which reads a part of a frame, and makes it fail if the part does not
// arrive in time.
func (c *Conn) readPartInTime(read func() error) error {
	c.inPart, c.partEnd = true, time.Time{}
	err := read()
	c.inPart = false
	switch {
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	case errors.Is(err, os.ErrDeadlineExceeded) && c.limits.Stall > 0:
		return fmt.Errorf("less than %d bytes of a frame have arrived within %v: %w", framePart, c.limits.Stall, err)
	}
	return err
}

// WriteFrame writes the buffer and then a frame. It blocks until the network has accepted all of them.
// It does not keep data.
func (c *Conn) WriteFrame(data []byte) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if err := c.bufferFrame(data); err != nil {
		return err
	}
	return c.writer.Flush()
}

// Buffer adds a frame to the buffer. If the buffer is full, Buffer writes it. Buffer does not keep
// data.
func (c *Conn) Buffer(data []byte) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	return c.bufferFrame(data)
}

// Flush writes the buffer to the network.
func (c *Conn) Flush() error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	return c.writer.Flush()
}

func (c *Conn) bufferFrame(data []byte) error {
	if len(data) > MaxFrame {
		return fmt.Errorf("%w: a frame of %d bytes exceeds the limit of %d", api.ErrTooLarge, len(data), MaxFrame)
	}
	binary.BigEndian.PutUint32(c.writeHead[:], uint32(len(data)))
	if _, err := c.writer.Write(c.writeHead[:]); err != nil {
		return err
	}
	_, err := c.writer.Write(data)
	return err
}

// timedReader sets a deadline before every read from its connection, and removes the deadline of a part
// of a frame that is not being read any more.
type timedReader struct{ conn *Conn }

func (r timedReader) Read(p []byte) (int, error) {
	c := r.conn
	var end time.Time
	switch timeout := time.Duration(c.readTimeout.Load()); {
	case c.inPart && c.limits.Stall > 0:
		if c.partEnd.IsZero() {
			c.partEnd = time.Now().Add(c.limits.Stall)
		}
		end, c.hasDeadline = c.partEnd, true
	case timeout > 0:
		end = time.Now().Add(timeout)
	case !c.hasDeadline:
		return c.stream.Read(p)
	default:
		c.hasDeadline = false
	}
	if err := c.stream.SetReadDeadline(end); err != nil {
		return 0, err
	}
	return c.stream.Read(p)
}

// timedWriter splits each write to its connection into parts, and sets a deadline before every part.
type timedWriter struct{ conn *Conn }

func (w timedWriter) Write(p []byte) (written int, err error) {
	for err == nil && written < len(p) {
		if d := w.conn.writeTimeout.Load(); d > 0 {
			if err := w.conn.stream.SetWriteDeadline(time.Now().Add(time.Duration(d))); err != nil {
				return written, err
			}
		}
		var n int
		n, err = w.conn.stream.Write(p[written:min(written+maxWrite, len(p))])
		written += n
	}
	return written, err
}
