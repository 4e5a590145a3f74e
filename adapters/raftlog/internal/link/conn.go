package link

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// MaxFrame is how many bytes a frame may have.
const MaxFrame = 64 << 20

const (
	// maxHandshake is how many bytes a frame may have before the other side is known.
	maxHandshake = 4 << 10
	readBuffer   = 16 << 10
	writeBuffer  = 64 << 10
	// piece is how much is written under one deadline: a slow connection that gets on is
	// not a dead one.
	piece = 256 << 10
	// trust is how much memory a frame gets before its bytes have come.
	trust = 1 << 20
)

// Conn is a connection whose other end is known. It carries frames in both directions.
// One goroutine may read while others write; Close may be called from any.
type Conn struct {
	raw    net.Conn // what Close closes: a farewell by TLS could block
	stream net.Conn // raw, or TLS on it
	remote Hello

	in      *bufio.Reader
	inHead  [4]byte
	limit   int
	silence atomic.Int64

	mu      sync.Mutex // serialises writers
	out     *bufio.Writer
	outHead [4]byte
	stall   atomic.Int64
}

func newConn(raw, stream net.Conn) *Conn {
	c := &Conn{raw: raw, stream: stream, limit: maxHandshake}
	c.in = bufio.NewReaderSize(timedReader{c}, readBuffer)
	c.out = bufio.NewWriterSize(timedWriter{c}, writeBuffer)
	return c
}

// Remote is who is at the other end, as proven by the handshake.
func (c *Conn) Remote() Hello { return c.remote }

// RemoteAddr is the other end's address on the network.
func (c *Conn) RemoteAddr() net.Addr { return c.raw.RemoteAddr() }

// SetTimeouts has ReadFrame fail after nothing has come for as long as read, and writes
// after nothing could be written for as long as write. Zero, the default, is for ever. After
// such an error the connection is of no use.
func (c *Conn) SetTimeouts(read, write time.Duration) {
	c.silence.Store(int64(read))
	c.stall.Store(int64(write))
	if read == 0 {
		c.stream.SetReadDeadline(time.Time{})
	}
	if write == 0 {
		c.stream.SetWriteDeadline(time.Time{})
	}
}

// Close ends the connection; whoever reads or writes gets an error. It does not block, and
// does not write what is buffered. It may be called more than once.
func (c *Conn) Close() error { return c.raw.Close() }

// ReadFrame waits for the next frame, which belongs to the caller. A frame that is larger
// than MaxFrame is api.ErrTooLarge; after any error the connection is of no use.
func (c *Conn) ReadFrame() ([]byte, error) {
	if _, err := io.ReadFull(c.in, c.inHead[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(c.inHead[:])
	if uint64(size) > uint64(c.limit) {
		return nil, fmt.Errorf("%w: a frame of %d bytes exceeds the limit of %d", api.ErrTooLarge, size, c.limit)
	}
	n := int(size)
	frame := make([]byte, min(n, trust))
	for got := 0; ; {
		m, err := io.ReadFull(c.in, frame[got:])
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		if got += m; got == n {
			return frame, nil
		}
		more := min(n-got, got)
		frame = slices.Grow(frame, more)[:got+more]
	}
}

// WriteFrame writes a frame, and all that is buffered. It blocks until the network has taken
// it. Data are not kept.
func (c *Conn) WriteFrame(data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.buffer(data); err != nil {
		return err
	}
	return c.out.Flush()
}

// Buffer puts a frame into the buffer, and writes only when that is full. Data are not kept.
func (c *Conn) Buffer(data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buffer(data)
}

// Flush writes what is buffered.
func (c *Conn) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Flush()
}

func (c *Conn) buffer(data []byte) error {
	if len(data) > MaxFrame {
		return fmt.Errorf("%w: a frame of %d bytes exceeds the limit of %d", api.ErrTooLarge, len(data), MaxFrame)
	}
	binary.BigEndian.PutUint32(c.outHead[:], uint32(len(data)))
	if _, err := c.out.Write(c.outHead[:]); err != nil {
		return err
	}
	_, err := c.out.Write(data)
	return err
}

type timedReader struct{ c *Conn }

func (r timedReader) Read(p []byte) (int, error) {
	if d := r.c.silence.Load(); d > 0 {
		if err := r.c.stream.SetReadDeadline(time.Now().Add(time.Duration(d))); err != nil {
			return 0, err
		}
	}
	return r.c.stream.Read(p)
}

type timedWriter struct{ c *Conn }

func (w timedWriter) Write(p []byte) (written int, err error) {
	for err == nil && written < len(p) {
		if d := w.c.stall.Load(); d > 0 {
			if err := w.c.stream.SetWriteDeadline(time.Now().Add(time.Duration(d))); err != nil {
				return written, err
			}
		}
		var n int
		n, err = w.c.stream.Write(p[written:min(written+piece, len(p))])
		written += n
	}
	return written, err
}
