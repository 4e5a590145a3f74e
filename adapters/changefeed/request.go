package changefeed

import (
	"context"
	"errors"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/protocol"
)

// response is the result of a request to the store.
type response struct {
	op     protocol.Op
	record Record
	err    error
}

// input converts the response to an input of the algorithm. An error other than ErrConflict and ErrNoRecord is passed
// on as an unknown outcome: the request may have changed the record.
func (r response) input() protocol.Input {
	in := protocol.Input{Kind: protocol.Responded, Record: protocol.Record(r.record)}
	switch {
	case r.err == nil:
	case errors.Is(r.err, ErrConflict):
		in.Outcome = protocol.Conflict
	case errors.Is(r.err, ErrNoRecord):
		in.Outcome = protocol.NoRecord
	default:
		in.Outcome = protocol.Unknown
	}
	return in
}

// sendRequest sends the request of a to the store on a separate goroutine. There is one request at a time, so
// r.responses has capacity for its response, and the goroutine never blocks on it.
func (r *runner) sendRequest(a protocol.Action) {
	timeout := r.e.opts.requestTimeout()
	if a.Op == protocol.Create {
		timeout = max(timeout, startLimit)
	}
	r.calls.Go(func() {
		ctx, cancel := context.WithTimeout(r.ctx, timeout)
		defer cancel()
		got := response{op: a.Op}
		switch a.Op {
		case protocol.Read:
			got.record, got.err = r.e.store.Read(ctx)
		case protocol.Create:
			record := Record(a.Record)
			record.Epoch = protocol.Epoch(protocol.Generation(record.Epoch), randomID())
			got.err = r.e.store.Create(ctx, record)
		default:
			got.record, got.err = r.e.store.Heartbeat(ctx, Record(a.Prev), Record(a.Record))
		}
		if got.err == nil && a.Op != protocol.Create {
			got.err = validateRecord(got.record)
		}
		r.responses <- got
	})
}

// delivery is an event of a feed, or the error with which it has failed.
type delivery struct {
	feed  int // feed is the value of runner.feed when the feed was opened.
	input protocol.Input
	err   error
}

// openFeed opens a feed, which replaces the current one, and receives from it on a separate goroutine
// until it fails or is replaced.
func (r *runner) openFeed() {
	r.closeFeed()
	r.feed++
	feed := r.feed
	ctx, cancel := context.WithCancel(r.ctx)
	r.closeFeed = cancel
	r.calls.Go(func() {
		defer cancel()
		deliver := func(in protocol.Input, err error) bool {
			select {
			case r.deliveries <- delivery{feed, in, err}:
				return true
			case <-ctx.Done():
				return false
			}
		}
		down := protocol.Input{Kind: protocol.FeedDown}
		f, err := r.e.store.Subscribe(ctx)
		if err != nil {
			deliver(down, err)
			return
		}
		defer f.Close() // Close may take a while, so an error is delivered before.
		for {
			event, err := f.Next(ctx)
			in := protocol.Input{Kind: protocol.Missed, ByFeed: true}
			if err == nil && !event.Missing {
				err = validateRecord(event.Record)
				in = protocol.Input{Kind: protocol.Observed, ByFeed: true, Hint: event.Hint, Record: protocol.Record(event.Record)}
			}
			if err != nil {
				deliver(down, err)
				return
			}
			if !deliver(in, nil) {
				return
			}
		}
	})
}
