package rpc

// What a connection is to this package, and the frames that wait to be written to one.

import (
	"context"
	"sync"
)

// Stream is a connection that carries frames. One goroutine reads and another writes; Close
// may be called by any, more than once, and ends what the others wait for.
type Stream interface {
	// ReadFrame returns the next frame, which is good until the next call.
	ReadFrame() ([]byte, error)
	// WriteFrame writes a frame, and does not keep it. It fails after a while if the other
	// side reads nothing.
	WriteFrame([]byte) error
	Close() error
}

// outbox holds a server's messages until its writer takes them, a frame at a time.
type outbox struct {
	wake chan struct{} // one place: there is something to take

	mu      sync.Mutex
	full    []frame       // in order, before open
	open    frame         // the frame that messages are added to
	size    int           // of all
	pong    uint64        // the newest ping that was not answered; 0 for none
	taken   chan struct{} // closed when something was taken; nil if nobody waits for it
	recycle []byte
}

// frame is messages in bytes, and how many calls end by them.
type frame struct {
	b    []byte
	ends int
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// add appends a message; it does not block. ends says that it is a call's last one.
func (o *outbox) add(ends bool, message func([]byte) []byte) {
	o.mu.Lock()
	o.addLocked(ends, message)
	o.mu.Unlock()
	signal(o.wake)
}

func (o *outbox) addLocked(ends bool, message func([]byte) []byte) {
	if len(o.open.b) >= frameTarget {
		o.full = append(o.full, o.open)
		o.open = frame{}
	}
	if o.open.b == nil {
		o.open.b, o.recycle = o.recycle, nil
	}
	before := len(o.open.b)
	b := message(o.open.b)
	if before > 0 && len(b) > frameTarget {
		// It is too long to go with others.
		o.full = append(o.full, frame{b[:before:before], o.open.ends})
		o.open = frame{b: append([]byte(nil), b[before:]...)}
	} else {
		o.open.b = b
	}
	o.size += len(b) - before
	if ends {
		o.open.ends++
	}
}

// addWhenTaken is add for streams: it waits until little is left of what was added before.
func (o *outbox) addWhenTaken(ctx context.Context, message func([]byte) []byte) error {
	for {
		o.mu.Lock()
		if o.size < 2*frameTarget {
			o.addLocked(false, message)
			o.mu.Unlock()
			signal(o.wake)
			return nil
		}
		if o.taken == nil {
			o.taken = make(chan struct{})
		}
		taken := o.taken
		o.mu.Unlock()
		select {
		case <-taken:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (o *outbox) setPong(token uint64) {
	o.mu.Lock()
	o.pong = token
	o.mu.Unlock()
	signal(o.wake)
}

// take returns the next frame; none if it has no bytes.
func (o *outbox) take() frame {
	o.mu.Lock()
	defer o.mu.Unlock()
	if token := o.pong; token != 0 {
		o.pong = 0
		o.addLocked(false, func(b []byte) []byte { return appendMessage(b, msgPong, token, nil) })
	}
	var f frame
	if len(o.full) > 0 {
		f = o.full[0]
		o.full = o.full[1:]
	} else {
		f, o.open = o.open, frame{}
	}
	o.size -= len(f.b)
	if o.taken != nil {
		close(o.taken)
		o.taken = nil
	}
	return f
}

// giveBack lets a frame's memory be used again.
func (o *outbox) giveBack(b []byte) {
	if cap(b) > 2*frameTarget {
		return
	}
	o.mu.Lock()
	o.recycle = b[:0]
	o.mu.Unlock()
}

// signal puts a token into a channel of one place.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
