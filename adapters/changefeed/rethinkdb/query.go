package rethinkdb

import (
	"context"
	"encoding/json"
	"errors"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"
)

// query returns the value of a query. It runs the query on a separate goroutine, so that it can return when ctx is
// done: the driver ignores the context while it reconnects to a server that does not respond. The number of these
// goroutines is limited by maxQueries.
func (s *Store) query(ctx context.Context, query r.Term) (json.RawMessage, error) {
	select {
	case s.queries <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	type result struct {
		raw json.RawMessage
		err error
	}
	results := make(chan result, 1)
	if err := s.runner.Go(func() {
		defer func() { <-s.queries }()
		raw, err := runQuery(ctx, s.session, query)
		results <- result{raw, err}
	}); err != nil {
		<-s.queries
		return nil, err
	}
	select {
	case res := <-results:
		return res.raw, res.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// runQuery returns the first value of a query.
func runQuery(ctx context.Context, session r.QueryExecutor, query r.Term) (json.RawMessage, error) {
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

// writeResponse is the response to a write.
type writeResponse struct {
	Replaced, Inserted, Skipped, Errors int
	FirstError                          string `json:"first_error"`
	Changes                             []struct {
		New json.RawMessage `json:"new_val"`
	}
}

// documentError is the error of one document in a query that was executed.
type documentError string

func (e documentError) Error() string { return "rethinkdb: " + string(e) }

// write executes a write. The error is a documentError if a document was not written.
func (s *Store) write(ctx context.Context, query r.Term) (writeResponse, error) {
	var w writeResponse
	raw, err := s.query(ctx, query)
	if err == nil {
		err = json.Unmarshal(raw, &w)
	}
	if err == nil && w.Errors > 0 {
		err = documentError(w.FirstError)
	}
	return w, err
}
