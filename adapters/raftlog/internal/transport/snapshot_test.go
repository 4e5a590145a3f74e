package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

func TestSnapshot_SendsHeaderAndBody(t *testing.T) {
	for _, size := range []int{0, 1, snapshotChunk, 3*snapshotChunk + 17} {
		runInBubble(t, func(t *testing.T, h *harness) {
			type result struct {
				header, body []byte
				size         int64
				err          error
			}
			results := make(chan result, 1)
			a := h.startPeer("a", peersOf("b"))
			h.startPeer("b", nil, func(c *Config) {
				c.OnSnapshot = func(conn *link.Conn) {
					in, err := ReceiveSnapshot(conn)
					if err != nil {
						results <- result{err: err}
						return
					}
					body, err := io.ReadAll(in)
					results <- result{in.Header, body, in.Size, errors.Join(err, in.Finish(nil))}
				}
			})
			data := bytes.Repeat([]byte("snapshot"), size/8+1)
			// The reader contains more than size bytes, of which only size must be sent.
			require.NoError(t, a.Snapshot(t.Context(), "b", []byte("header"), int64(size), bytes.NewReader(data)))
			r := <-results
			require.NoError(t, r.err)
			require.Equal(t, "header", string(r.header))
			require.EqualValues(t, size, r.size)
			require.True(t, bytes.Equal(data[:size], r.body))
		})
	}
}

func TestSnapshot_ReturnsReasonOfFailure(t *testing.T) {
	disk := errors.New("the disk is full")
	for name, c := range map[string]struct {
		header  int
		size    int64
		body    io.Reader
		receive func(*link.Conn)
		change  func(h *harness, a *Transport, cancel context.CancelCauseFunc)
		to      string
		is      error
		text    string
	}{
		"too short": {size: 100, body: bytes.NewReader(make([]byte, 99)), is: io.ErrUnexpectedEOF},
		"body":      {size: 100, body: io.MultiReader(bytes.NewReader(make([]byte, 50)), failingReader{disk}), is: disk},
		"rejected": {text: disk.Error(), receive: func(conn *link.Conn) {
			if in, err := ReceiveSnapshot(conn); err == nil {
				in.Finish(disk)
			}
		}},
		"not finished": {is: io.EOF, receive: func(conn *link.Conn) { ReceiveSnapshot(conn) }},
		"finished too early": {size: 10, body: bytes.NewReader(make([]byte, 10)), is: io.EOF, receive: func(conn *link.Conn) {
			if in, err := ReceiveSnapshot(conn); err == nil && in.Finish(nil) == nil {
				panic("an incomplete snapshot was accepted")
			}
		}},
		"unknown":   {to: "z", is: api.ErrInvalid},
		"negative":  {size: -1, is: api.ErrInvalid},
		"header":    {header: link.MaxFrame, is: api.ErrTooLarge},
		"cancelled": {is: disk, change: func(_ *harness, _ *Transport, cancel context.CancelCauseFunc) { cancel(disk) }},
		"closed":    {is: api.ErrClosed, change: func(_ *harness, a *Transport, _ context.CancelCauseFunc) { a.Close() }},
		"cut": {size: 1 << 20, body: bytes.NewReader(make([]byte, 1<<20)), text: "timeout", change: func(h *harness, _ *Transport, _ context.CancelCauseFunc) {
			h.network.CutBoth("a:7", "b:7")
		}, receive: func(conn *link.Conn) {
			time.Sleep(time.Minute)
			in, err := ReceiveSnapshot(conn)
			if err == nil {
				_, err = io.Copy(io.Discard, in)
			}
			if err == nil {
				panic("a snapshot was received during a partition")
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			runInBubble(t, func(t *testing.T, h *harness) {
				a := h.startPeer("a", peersOf("b"))
				h.startPeer("b", nil, func(cfg *Config) {
					if cfg.OnSnapshot = c.receive; c.receive == nil {
						cfg.OnSnapshot = func(conn *link.Conn) {
							if in, err := ReceiveSnapshot(conn); err == nil {
								io.Copy(io.Discard, in)
								conn.ReadFrame() // blocks until the connection is closed
							}
						}
					}
				})
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				to := c.to
				if to == "" {
					to = "b"
				}
				done := make(chan error, 1)
				go func() { done <- a.Snapshot(ctx, to, make([]byte, c.header), c.size, c.body) }()
				if c.change != nil {
					waitIdle()
					c.change(h, a, cancel)
				}
				err := <-done
				require.Error(t, err)
				if c.is != nil {
					require.ErrorIs(t, err, c.is)
				}
				require.Contains(t, err.Error(), c.text)
			})
		})
	}
}

// TestSnapshot_WaitsForSlowReceiver checks that the sender waits for a receiver that stores a snapshot for
// almost a minute, and a second for each 4 MiB, but fails if the network was interrupted for longer.
func TestSnapshot_WaitsForSlowReceiver(t *testing.T) {
	const size = 40 << 20
	const limit = time.Minute + 10*time.Second
	for name, c := range map[string]struct {
		cut bool
		is  error
	}{"slow": {}, "disconnected": {cut: true, is: os.ErrDeadlineExceeded}} {
		t.Run(name, func(t *testing.T) {
			runInBubble(t, func(t *testing.T, h *harness) {
				a := h.startPeer("a", peersOf("b"))
				h.startPeer("b", nil, func(cfg *Config) {
					cfg.OnSnapshot = func(conn *link.Conn) {
						in, err := ReceiveSnapshot(conn)
						if err == nil {
							_, err = io.Copy(io.Discard, in)
						}
						if err != nil {
							panic(err)
						}
						if c.cut {
							h.network.CutBoth("a:7", "b:7")
						}
						time.Sleep(limit - time.Second)
						in.Finish(nil)
					}
				})
				done := make(chan error, 1)
				go func() { done <- a.Snapshot(t.Context(), "b", nil, size, bytes.NewReader(make([]byte, size))) }()
				select {
				case err := <-done:
					require.ErrorIs(t, err, c.is)
				case <-time.After(limit + time.Second):
					require.Fail(t, "the sender still waits")
				}
			})
		})
	}
}

type failingReader struct{ err error }

func (b failingReader) Read([]byte) (int, error) { return 0, b.err }

func TestReceiveSnapshot_RejectsInvalidFrames(t *testing.T) {
	for name, frames := range map[string][][]byte{
		"short":    {[]byte("1234567")},
		"negative": {{255, 0, 0, 0, 0, 0, 0, 0}},
		"too much": {{0, 0, 0, 0, 0, 0, 0, 2}, []byte("abc")},
		"empty":    {{0, 0, 0, 0, 0, 0, 0, 2}, {}},
		"cut off":  {{0, 0, 0, 0, 0, 0, 0, 2}, {1}},
	} {
		t.Run(name, func(t *testing.T) {
			runInBubble(t, func(t *testing.T, h *harness) {
				result := make(chan error, 1)
				h.startPeer("b", nil, func(c *Config) {
					c.OnSnapshot = func(conn *link.Conn) {
						in, err := ReceiveSnapshot(conn)
						if err == nil {
							_, err = io.Copy(io.Discard, in)
						}
						result <- err
					}
				})
				c, err := h.dialAs("a", "b", link.PurposeSnapshot)
				require.NoError(t, err)
				for _, f := range frames {
					require.NoError(t, c.WriteFrame(f))
				}
				c.Close()
				require.Error(t, <-result)
			})
		})
	}
}

// FuzzRefusal decodes arbitrary frames as a refusal. The reason and the text must be parts of the
// frame.
func FuzzRefusal(f *testing.F) {
	f.Add([]byte{refusalFrame, 3, 'x'})
	f.Add([]byte{refusalFrame})
	f.Fuzz(func(t *testing.T, frame []byte) {
		if r := decodeRefusal(frame); r != nil {
			require.Equal(t, frame, append([]byte{refusalFrame, byte(r.Reason)}, r.Text...))
		}
	})
}

// FuzzReceiveSnapshot receives arbitrary bytes as a snapshot. Either the body has the announced size, or
// there must be an error.
func FuzzReceiveSnapshot(f *testing.F) {
	frame := func(data string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)
	}
	f.Add(append(frame("\x00\x00\x00\x00\x00\x00\x00\x03header"), frame("abc")...))
	f.Add(frame("short"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		near, far := net.Pipe()
		var sender sync.WaitGroup
		sender.Go(func() {
			if _, err := link.Dial(t.Context(), near, identityOf("a"), peersOf("b")[0], link.PurposeSnapshot); err == nil {
				_, _ = near.Write(sent)
			}
			near.Close()
		})
		defer sender.Wait()
		conn, err := link.Accept(t.Context(), far, identityOf("b"))
		require.NoError(t, err)
		defer conn.Close()
		in, err := ReceiveSnapshot(conn)
		if err != nil {
			return
		}
		body, err := io.ReadAll(in)
		require.LessOrEqual(t, len(body), len(sent))
		if err == nil {
			require.EqualValues(t, in.Size, len(body))
		}
	})
}
