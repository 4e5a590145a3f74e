package rethinkdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
	"github.com/go-leaderelection/leaderelection/candidacy/limit"
)

// removeDuplicateTables keeps the table with the lowest ID among those that have the store's name, and
// removes the others. Clients that do so at the same time keep the same table.
func (s *Store) removeDuplicateTables(ctx context.Context) error {
	config := r.DB("rethinkdb").Table("table_config")
	raw, err := s.query(ctx, config.Filter(map[string]any{"db": s.database, "name": s.table}).
		OrderBy("id").Field("id").CoerceTo("array"))
	if err != nil {
		return err
	}
	var ids []string
	if err := json.Unmarshal(raw, &ids); err != nil {
		return err
	}
	for _, id := range ids[min(1, len(ids)):] {
		if err := s.removeDuplicate(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// removeDuplicate renames a table that has the store's name, because tables with the same name cannot be read. It drops
// the renamed table if it contains only records of elections.
func (s *Store) removeDuplicate(ctx context.Context, id string) error {
	name := "changefeed_duplicate_" + id[:8] + "_" + id[len(id)-8:]
	if _, err := s.write(ctx, r.DB("rethinkdb").Table("table_config").Get(id).Update(map[string]any{"name": name})); err != nil {
		if errors.As(err, new(documentError)) { // The table was renamed or dropped, or is not ready.
			err = fmt.Errorf("%w: %w", errBusy, err)
		}
		return err
	}
	table := r.DB(s.database).Table(name)
	for {
		raw, err := s.query(ctx, table.Filter(r.Row.Field("format").Default(nil).Ne(store.Format)).Limit(1).Count())
		switch {
		case err == nil && string(raw) == "0":
			_, err = s.query(ctx, r.DB(s.database).TableDrop(name))
		case isUnavailable(err): // The table is not ready, because it was created recently.
			if err := limit.Pause(ctx, pollInterval); err != nil {
				return err
			}
			continue
		}
		if errorKindOf(err) == noTable { // Another client has dropped the table.
			return nil
		}
		return err
	}
}
