package rpc

// The caller's reading: every message goes to the call that it is for, and none waits there.

import (
	"fmt"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

func (c *Caller) read() error {
	frame, err := c.stream.ReadFrame()
	if err != nil {
		return err
	}
	if err := checkHello(frame); err != nil {
		return fmt.Errorf("%w; %w", err, errNothingDone)
	}
	for {
		frame, err := c.stream.ReadFrame()
		if err != nil {
			return err
		}
		if len(frame) > maxFrame+2*frameTarget {
			return wire.Violation("a frame of %d bytes", len(frame))
		}
		c.mu.Lock()
		c.frames++
		c.mu.Unlock()
		for d := (wire.Decoder{B: frame}); len(d.B) > 0; {
			m := next(&d)
			if d.Err != nil {
				return d.Err
			}
			if err := c.receive(m); err != nil {
				return err
			}
		}
	}
}

func (c *Caller) receive(m message) error {
	if m.kind == msgPong {
		signal(c.pong)
		return nil
	}
	c.mu.Lock()
	k, last := c.calls[m.call], c.last
	if k != nil && !k.taken {
		k, last = nil, 0
	}
	if k != nil && (k.stream == nil || m.kind == msgError || m.kind == msgDone) {
		delete(c.calls, m.call) // this is its last message
	}
	c.mu.Unlock()
	switch {
	case m.call == 0 || m.call > last:
		return wire.Violation("an answer to call %d, which was not made", m.call)
	case k == nil:
		return nil // it was given up
	case m.kind == msgError:
		d := wire.Decoder{B: m.body}
		remote := d.Error()
		err := d.End()
		if err != nil {
			remote = wire.Violation("an error that cannot be read")
		}
		// The api's errors say what was done. After any other, anything may have been.
		if k.writes() && (err != nil || !wire.IsKnown(remote)) {
			remote = unknown(remote)
		}
		if k.stream != nil {
			k.stream.end(remote)
		} else {
			k.answer <- answer{err: remote}
		}
		return err
	case k.stream != nil:
		return k.stream.receive(m)
	}
	body, err := k.decode(m)
	a := answer{body, err}
	if err != nil && k.writes() {
		a.err = unknown(err)
	}
	k.answer <- a
	return err
}

func (c *call) decode(m message) (any, error) {
	if m.kind != msgResult {
		return nil, wire.Violation("a message of kind %d as the answer to one of kind %d", m.kind, c.kind)
	}
	switch c.kind {
	case msgMembership:
		return decodeMembership(m.body)
	case msgInfo:
		return decodeInfo(m.body)
	case msgElection:
		return decodeElection(m.body)
	case msgAskToResign:
		return nil, (&wire.Decoder{B: m.body}).End()
	}
	return decodeIndex(m.body)
}

var _ Service = (*Caller)(nil)
