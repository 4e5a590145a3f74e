package changefeed

import (
	"context"
	"errors"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed/internal/protocol"
)

// answer is how a request has ended.
type answer struct {
	op     protocol.Op
	record Record
	err    error
}

// input says what an answer is to the algorithm. Whatever is not known to have changed
// nothing may have changed something.
func (a answer) input() protocol.Input {
	in := protocol.Input{Kind: protocol.Done, Record: protocol.Record(a.record)}
	switch {
	case a.err == nil:
	case errors.Is(a.err, ErrConflict):
		in.Outcome = protocol.Conflict
	case errors.Is(a.err, ErrNoRecord):
		in.Outcome = protocol.NoRecord
	default:
		in.Outcome = protocol.Unknown
	}
	return in
}

// send sends the one request that is under way. Its goroutine ends with the answer, for
// which there is room.
func (r *run) send(a protocol.Action) {
	limit := r.e.timeout()
	if a.Op == protocol.Create {
		limit = max(limit, startLimit)
	}
	r.calls.Go(func() {
		ctx, cancel := context.WithTimeout(r.ctx, limit)
		defer cancel()
		got := answer{op: a.Op}
		switch a.Op {
		case protocol.Read:
			got.record, got.err = r.e.store.Read(ctx)
		case protocol.Create:
			blank := Record(a.Record)
			blank.Epoch = protocol.Epoch(protocol.Generation(blank.Epoch), randomID())
			got.err = r.e.store.Create(ctx, blank)
		default:
			got.record, got.err = r.e.store.Heartbeat(ctx, Record(a.Prev), Record(a.Record))
		}
		if got.err == nil && a.Op != protocol.Create {
			got.err = check(got.record)
		}
		r.answer <- got
	})
}

// fed is what a feed has told, by its number.
type fed struct {
	no  int
	in  protocol.Input
	err error
}

// subscribe opens a feed in place of the one there is. Its goroutine ends when the feed
// does, or when it is given up.
func (r *run) subscribe() {
	r.unfeed()
	r.feedNo++
	no := r.feedNo
	ctx, cancel := context.WithCancel(r.ctx)
	r.unfeed = cancel
	r.calls.Go(func() {
		defer cancel()
		tell := func(in protocol.Input, err error) bool {
			select {
			case r.fed <- fed{no, in, err}:
				return true
			case <-ctx.Done():
				return false
			}
		}
		broken := protocol.Input{Kind: protocol.FeedDown}
		f, err := r.e.store.Subscribe(ctx)
		if err != nil {
			tell(broken, err)
			return
		}
		defer f.Close() // after the error was told: it may take a while
		for {
			event, err := f.Next(ctx)
			if err == nil && !event.Missing {
				err = check(event.Record)
			}
			switch {
			case err != nil:
				tell(broken, err)
				return
			case event.Missing:
				if !tell(protocol.Input{Kind: protocol.Missing, ByFeed: true}, nil) {
					return
				}
			default:
				if !tell(protocol.Input{Kind: protocol.Observed, ByFeed: true, Hint: event.Hint, Record: protocol.Record(event.Record)}, nil) {
					return
				}
			}
		}
	})
}
