package rethinkdb

import (
	"context"
	"encoding/json"
	"errors"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"
)

// ask returns the one value that a query has. A driver that connects anew, to a server
// that is silent, waits for that whether or not ctx is done, and all that use the session
// wait with it. So it is called by a goroutine of its own, and there is a limit to those.
func (s *Store) ask(ctx context.Context, query r.Term) (json.RawMessage, error) {
	select {
	case s.calls <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	type answer struct {
		raw json.RawMessage
		err error
	}
	answers := make(chan answer, 1)
	if err := s.feeds.Go(func() {
		defer func() { <-s.calls }()
		var a answer
		a.raw, a.err = run(ctx, s.session, query)
		answers <- a
	}); err != nil {
		<-s.calls
		return nil, err
	}
	select {
	case a := <-answers:
		return a.raw, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func run(ctx context.Context, session r.QueryExecutor, query r.Term) (json.RawMessage, error) {
	c, err := query.Run(session, r.RunOpts{Context: ctx})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	raw, ok := c.NextResponse()
	if err := c.Err(); err != nil {
		return nil, err
	}
	if !ok {
		return nil, errors.New("rethinkdb: the reply has no value")
	}
	return raw, nil
}

// written is the answer to a write.
type written struct {
	Replaced, Inserted, Skipped, Errors int
	FirstError                          string `json:"first_error"`
	Changes                             []struct {
		New json.RawMessage `json:"new_val"`
	}
}

// rowError is what the server tells of a document, where the query as a whole was
// carried out.
type rowError string

func (e rowError) Error() string { return "rethinkdb: " + string(e) }

func (s *Store) write(ctx context.Context, query r.Term) (written, error) {
	var w written
	raw, err := s.ask(ctx, query)
	if err == nil {
		err = json.Unmarshal(raw, &w)
	}
	if err == nil && w.Errors > 0 {
		err = rowError(w.FirstError)
	}
	return w, err
}
