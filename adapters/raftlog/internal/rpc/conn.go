package rpc

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

// Conn is a connection that carries frames. One goroutine may read while another goroutine writes. Any
// goroutine may call Close, repeatedly, which makes pending calls return.
type Conn interface {
	// ReadFrame returns the next frame, which the caller may keep. If ReadFrame returns a part of a
	// frame together with an error, it has skipped the frame; see [link.FrameLimits].
	ReadFrame() ([]byte, error)
	// LimitFrames sets the limits of the frames that are received from now on. Only the goroutine that
	// reads may call it.
	LimitFrames(link.FrameLimits)
	// Buffer adds a frame to the buffer of the connection. If the buffer is full, Buffer writes it to
	// the connection. Buffer does not keep the frame.
	Buffer(frame []byte) error
	// Flush writes the buffer to the connection.
	Flush() error
	// SetTimeouts sets the time after which ReadFrame fails if no data has arrived, and the time after
	// which a write fails if the connection has accepted no data. Zero disables a timeout. The error of
	// a timeout wraps os.ErrDeadlineExceeded.
	SetTimeouts(read, write time.Duration)
	Close() error
}

// ErrLost is wrapped by the errors of calls and streams whose connection was lost. If the error does
// not also wrap [api.ErrUnknownOutcome], the request was not sent or does not change anything.
var ErrLost = errors.New("the connection was lost")

// withUnknownOutcome returns an error that wraps err and api.ErrUnknownOutcome.
func withUnknownOutcome(err error) error {
	if errors.Is(err, api.ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w: %w", api.ErrUnknownOutcome, err)
}

// batchBytes is the size at which a batch of messages to be written together is full.
const batchBytes = 128 << 10

// outbox is a queue of messages to be written to a connection.
type outbox struct {
	wake chan struct{} // receives a value after a message was added; has capacity 1

	mu      sync.Mutex
	urgent  []*outgoingMessage // the messages that are written before those in queue
	queue   []*outgoingMessage
	ping    bool // whether an empty frame, which is a ping, must be written
	writing bool // whether a batch of messages is being written
}

// outgoingMessage is a message that is queued in an outbox.
type outgoingMessage struct {
	frame    []byte
	taken    bool  // whether the message may have been written
	reserved int64 // the memory to release when the message is written
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

func (o *outbox) addMessage(m *outgoingMessage) {
	o.mu.Lock()
	o.queue = append(o.queue, m)
	o.mu.Unlock()
	signal(o.wake)
}

// addUrgent adds a message that is written before the messages of addMessage, such as a cancellation.
// The request of the cancelled call must have been taken before.
func (o *outbox) addUrgent(m *outgoingMessage) {
	o.mu.Lock()
	o.urgent = append(o.urgent, m)
	o.mu.Unlock()
	signal(o.wake)
}

func (o *outbox) addPing() {
	o.mu.Lock()
	o.ping = true
	o.mu.Unlock()
	signal(o.wake)
}

// remove removes a message from the queue. It returns false if the message may have been written.
func (o *outbox) remove(m *outgoingMessage) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !m.taken {
		o.queue = slices.DeleteFunc(o.queue, func(other *outgoingMessage) bool { return other == m })
	}
	return !m.taken
}

func (o *outbox) isTaken(m *outgoingMessage) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return m.taken
}

func (o *outbox) isWriting() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writing
}

// nextBatch appends the messages to write next to batch, and marks them as taken: from now on they may
// have been written.
func (o *outbox) nextBatch(batch []*outgoingMessage) []*outgoingMessage {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ping {
		o.ping = false
		batch = append(batch, &outgoingMessage{})
	}
	batch = append(batch, o.urgent...)
	o.urgent = nil
	n := 0
	for size := 0; n < len(o.queue) && size < batchBytes; n++ {
		size += len(o.queue[n].frame)
		o.queue[n].taken = true
	}
	batch = append(batch, o.queue[:n]...)
	o.queue = slices.Delete(o.queue, 0, n)
	o.writing = len(batch) > 0
	return batch
}

// writeMessages writes the messages of the queue until done is closed or the connection fails. It calls
// written for each message that is not a ping, when the message is in the buffer of the connection.
func (o *outbox) writeMessages(conn Conn, done <-chan struct{}, written func(*outgoingMessage)) error {
	var batch []*outgoingMessage
	for {
		runtime.Gosched() // so that other goroutines add messages to the batch
		batch = o.nextBatch(batch[:0])
		if len(batch) == 0 {
			select {
			case <-o.wake:
				continue
			case <-done:
				return nil
			}
		}
		for i, m := range batch {
			if err := conn.Buffer(m.frame); err != nil {
				return err
			}
			if len(m.frame) > 0 {
				written(m)
			}
			batch[i] = nil
		}
		if err := conn.Flush(); err != nil {
			return err
		}
	}
}

// signal sends a value to a channel of capacity 1, unless the channel already contains one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
