package rethinkdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"
)

// unify leaves one table of those that have the store's name, that with the lowest ID:
// whoever does so at the same time leaves the same. The others cannot be looked into
// until they have names of their own.
func (s *Store) unify(ctx context.Context) error {
	config := r.DB("rethinkdb").Table("table_config")
	raw, err := s.ask(ctx, config.Filter(map[string]any{"db": s.database, "name": s.table}).
		OrderBy("id").Field("id").CoerceTo("array"))
	if err != nil {
		return err
	}
	var ids []string
	if err := json.Unmarshal(raw, &ids); err != nil {
		return err
	}
	for _, id := range ids[min(1, len(ids)):] {
		if err := s.putAside(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// putAside renames a table, and drops it if it holds nothing but records of elections.
func (s *Store) putAside(ctx context.Context, id string) error {
	name := "changefeed_duplicate_" + id[:8] + "_" + id[len(id)-8:]
	if _, err := s.write(ctx, r.DB("rethinkdb").Table("table_config").Get(id).Update(map[string]any{"name": name})); err != nil {
		if errors.As(err, new(rowError)) { // renamed or dropped meanwhile, or not ready
			err = fmt.Errorf("%w: %w", errBusy, err)
		}
		return err
	}
	table := r.DB(s.database).Table(name)
	for {
		raw, err := s.ask(ctx, table.Filter(r.Row.Field("format").Default(nil).Ne(format)).Limit(1).Count())
		switch {
		case err == nil && string(raw) == "0":
			_, err = s.ask(ctx, r.DB(s.database).TableDrop(name))
		case unavailable(err): // it is young
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(pause):
			}
			continue
		}
		if kindOf(err) == noTable { // somebody else has dropped it
			return nil
		}
		return err
	}
}
