package rpc

// Streams at the server: nothing is read from the log, or from a snapshot, that the caller
// has not granted.

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/wire"
)

// credit is what may be sent of a stream.
type credit struct {
	more chan struct{} // one place: something was added

	mu              sync.Mutex
	bytes, messages int64
}

func newCredit(g grant) *credit {
	return &credit{more: make(chan struct{}, 1), bytes: int64(g.bytes), messages: int64(g.messages)}
}

func (c *credit) add(g grant) error {
	c.mu.Lock()
	c.bytes += int64(g.bytes)
	c.messages += int64(g.messages)
	over := c.bytes > maxGrant || c.messages > maxGrant
	c.mu.Unlock()
	if over {
		return wire.Violation("more than %d bytes or messages were granted for a stream", maxGrant)
	}
	signal(c.more)
	return nil
}

// wait waits until a message may be sent.
func (c *credit) wait(ctx context.Context) error {
	for {
		c.mu.Lock()
		some := c.bytes > 0 && c.messages > 0
		c.mu.Unlock()
		if some {
			return nil
		}
		select {
		case <-c.more:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *credit) spend(bytes int) {
	c.mu.Lock()
	c.bytes -= int64(bytes)
	c.messages--
	c.mu.Unlock()
}

// beginStream is begin for streams.
func (v *server) beginStream(ctx context.Context, call uint64, g grant, do func(context.Context, *credit) error) error {
	c := newCredit(g)
	if v.streams.Add(1) > maxStreams {
		do = func(context.Context, *credit) error {
			return fmt.Errorf("%w: one connection has at most %d streams", api.ErrBusy, maxStreams)
		}
	}
	return v.begin(ctx, call, c, func(ctx context.Context) {
		err := do(ctx, c)
		v.streams.Add(-1)
		if err != nil {
			v.result(call, err, nil)
			return
		}
		v.mu.Lock()
		delete(v.calls, call)
		v.mu.Unlock()
		v.out.add(true, func(b []byte) []byte { return appendMessage(b, msgDone, call, nil) })
	})
}

// send sends a message of a stream, for which there is credit.
func (v *server) send(ctx context.Context, c *credit, call uint64, kind byte, body func([]byte) []byte) error {
	size := 0
	err := v.out.addWhenTaken(ctx, func(b []byte) []byte {
		return appendMessage(b, kind, call, func(b []byte) []byte {
			before := len(b)
			b = body(b)
			size = len(b) - before
			return b
		})
	})
	c.spend(size)
	return err
}

func (v *server) entries(ctx context.Context, call uint64, c *credit, from uint64) error {
	events, err := v.service.Entries(ctx, from)
	if err != nil {
		return err
	}
	var once sync.Once
	closeEvents := func() { once.Do(func() { events.Close() }) }
	defer closeEvents()
	// Next may wait for long; Close ends that.
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		closeEvents()
	})
	defer func() {
		if !stop() {
			<-ended
		}
	}()
	for {
		if err := c.wait(ctx); err != nil {
			return err
		}
		event, err := events.Next()
		if err != nil {
			return err
		}
		switch {
		case event.Entry != nil:
			if len(event.Entry.Data) > wire.MaxData {
				return fmt.Errorf("%w: entry %d has %d bytes, the limit is %d", api.ErrTooLarge, event.Entry.Index, len(event.Entry.Data), wire.MaxData)
			}
			err = v.send(ctx, c, call, msgEntry, func(b []byte) []byte { return appendEntry(b, event.Entry) })
		case event.Snapshot != nil:
			err = v.sendSnapshot(ctx, call, c, *event.Snapshot)
		case event.Progress != nil:
			if err = wire.CheckPeers(event.Progress.Leader); err == nil {
				err = v.send(ctx, c, call, msgPulse, func(b []byte) []byte { return appendPulse(b, event.Progress) })
			}
		}
		if err != nil {
			return err
		}
	}
}

func (v *server) snapshot(ctx context.Context, call uint64, c *credit) error {
	s, err := v.service.Snapshot(ctx)
	if err != nil {
		return err
	}
	if err := c.wait(ctx); err != nil {
		return errors.Join(err, s.Data.Close())
	}
	return v.sendSnapshot(ctx, call, c, s)
}

// sendSnapshot sends the header, for which there is credit, and the data.
func (v *server) sendSnapshot(ctx context.Context, call uint64, c *credit, s api.SnapshotStream) error {
	defer s.Data.Close()
	if s.Size < 0 {
		return fmt.Errorf("snapshot at index %d has a size of %d", s.Index, s.Size)
	}
	header := snapshotHeader{s.Index, s.Term, s.Size}
	if err := v.send(ctx, c, call, msgSnapshotHeader, func(b []byte) []byte { return appendSnapshotHeader(b, header) }); err != nil {
		return err
	}
	chunk := make([]byte, min(s.Size, chunkSize))
	for left := s.Size; left > 0; {
		if err := c.wait(ctx); err != nil {
			return err
		}
		n, err := s.Data.Read(chunk[:min(left, int64(len(chunk)))])
		if n > 0 {
			if err := v.send(ctx, c, call, msgChunk, func(b []byte) []byte { return append(b, chunk[:n]...) }); err != nil {
				return err
			}
			left -= int64(n)
		}
		if err != nil && left > 0 {
			return fmt.Errorf("reading the snapshot at index %d, %d bytes before its end: %w", s.Index, left, err)
		}
	}
	if err := c.wait(ctx); err != nil {
		return err
	}
	return v.send(ctx, c, call, msgSnapshotEnd, func(b []byte) []byte { return b })
}

func appendIndex(b []byte, index uint64) []byte { return binary.AppendUvarint(b, index) }
