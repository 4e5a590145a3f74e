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

// MaxFrame is the maximum size of a frame in bytes.
const MaxFrame = 64 << 20

const (
	// maxHandshakeFrame is the maximum size of a frame of the handshake in bytes.
	maxHandshakeFrame = 4 << 10
	readBufferSize    = 16 << 10
	writeBufferSize   = 64 << 10
	// maxWrite is the number of bytes that must be written before the write timeout, so that a
	// slow connection that makes progress does not fail.
	maxWrite = 256 << 10
	// firstAllocation is the memory that is allocated for a frame before any of its bytes have
	// been received.
	firstAllocation = 1 << 20
)

// Conn is a connection whose other side is authenticated. It carries frames in both directions. One
// goroutine may read while others write. Close may be called by any goroutine.
type Conn struct {
	raw    net.Conn // closed by Close, because tls.Conn.Close can block
	stream net.Conn // raw, or a *tls.Conn on raw
	remote Hello
	// version is the version of the protocol that both sides use.
	version byte

	reader      *bufio.Reader
	readHead    [4]byte
	maxFrame    int
	readTimeout atomic.Int64

	writeMu      sync.Mutex
	writer       *bufio.Writer
	writeHead    [4]byte
	writeTimeout atomic.Int64
}

func newConn(raw, stream net.Conn) *Conn {
	c := &Conn{raw: raw, stream: stream, maxFrame: maxHandshakeFrame}
	c.reader = bufio.NewReaderSize(timedReader{c}, readBufferSize)
	c.writer = bufio.NewWriterSize(timedWriter{c}, writeBufferSize)
	return c
}

// Remote returns the identity of the other side, which the handshake has verified.
func (c *Conn) Remote() Hello { return c.remote }

// Version returns the version of the protocol: the highest one that both sides support. A kind of
// message that was added in a later version must not be sent on the connection.
func (c *Conn) Version() byte { return c.version }

// RemoteAddr returns the network address of the other side.
func (c *Conn) RemoteAddr() net.Addr { return c.raw.RemoteAddr() }

// SetTimeouts sets the time after which ReadFrame fails if no data has arrived, and the time after
// which writes fail if the connection has not accepted data. Zero, the default, disables a timeout.
// After a timeout the connection cannot be used any more.
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

// Close closes the connection. Pending reads and writes return an error. Close does not block and
// does not flush the buffer. It may be called repeatedly.
func (c *Conn) Close() error { return c.raw.Close() }

// ReadFrame returns the next frame, which the caller may keep. If the frame is larger than MaxFrame,
// the error wraps api.ErrTooLarge. After an error the connection cannot be used any more.
func (c *Conn) ReadFrame() ([]byte, error) {
	if _, err := io.ReadFull(c.reader, c.readHead[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(c.readHead[:])
	if uint64(size) > uint64(c.maxFrame) {
		return nil, fmt.Errorf("%w: a frame of %d bytes exceeds the limit of %d", api.ErrTooLarge, size, c.maxFrame)
	}
	n := int(size)
	frame := make([]byte, min(n, firstAllocation))
	for got := 0; ; {
		m, err := io.ReadFull(c.reader, frame[got:])
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

// WriteFrame writes the buffer and a frame. It blocks until the network has accepted them. It does
// not keep the frame.
func (c *Conn) WriteFrame(data []byte) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if err := c.bufferFrame(data); err != nil {
		return err
	}
	return c.writer.Flush()
}

// Buffer adds a frame to the buffer, which is written only if it is full. It does not keep the frame.
func (c *Conn) Buffer(data []byte) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	return c.bufferFrame(data)
}

// Flush writes the buffer.
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

// timedReader sets a deadline before every read.
type timedReader struct{ conn *Conn }

func (r timedReader) Read(p []byte) (int, error) {
	if d := r.conn.readTimeout.Load(); d > 0 {
		if err := r.conn.stream.SetReadDeadline(time.Now().Add(time.Duration(d))); err != nil {
			return 0, err
		}
	}
	return r.conn.stream.Read(p)
}

// timedWriter sets a deadline before every part of a write.
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
