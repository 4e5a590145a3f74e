package rethinkdb

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Start implements [changefeed.Store]: it checks the table, the record and the
// permissions. It tests the permission to write by an update that does not change the
// record. If the table can lose acknowledged writes, Start returns a
// [changefeed.UnsafeError] unless [WithRisk] accepts the risk.
func (s *Store) Start(ctx context.Context) error {
	both, end, err := s.feeds.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	return s.explain(ctx, "check table "+s.name(), s.checkTable(both))
}

func (s *Store) checkTable(ctx context.Context) error {
	raw, err := s.ask(ctx, s.in().Get(s.key))
	switch k := kindOf(err); {
	case k == ambiguous && !s.existing:
		return nil // Create repairs that
	case k == ambiguous:
		return refuse("there are several tables %s (%w); keep one of them, using their IDs in the table rethinkdb.table_config", s.name(), err)
	case (k == noDatabase || k == noTable) && s.existing:
		return refuse("table %s does not exist, and the store is configured not to create it (%w); create it with write_acks majority", s.name(), err)
	case k == noDatabase || k == noTable:
		return nil
	case err != nil:
		return err
	}
	if string(raw) != "null" {
		if _, err := decode(raw); err != nil {
			return err
		}
	}
	if _, err := s.write(ctx, s.in().Get(s.key).Update(map[string]any{}, r.UpdateOpts{Durability: "soft"})); err != nil {
		return err
	}
	return s.checkConfig(ctx)
}

// checkConfig refuses a table that can lose acknowledged writes, unless that was accepted. If
// the user may not read the configuration, the table counts as one that has the server's
// default, which is safe.
func (s *Store) checkConfig(ctx context.Context) error {
	raw, err := s.ask(ctx, r.DB(s.database).Table(s.table).Config())
	if kindOf(err) == forbidden {
		return nil
	}
	if err != nil {
		return err
	}
	var config struct {
		PrimaryKey string          `json:"primary_key"`
		WriteAcks  json.RawMessage `json:"write_acks"` // a list, in servers of long ago
		Shards     []struct{ Replicas []string }
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return err
	}
	if config.PrimaryKey != "id" {
		return refuse("the primary key of table %s is %q, not id; use another table", s.name(), config.PrimaryKey)
	}
	acks := strings.Trim(string(config.WriteAcks), `"`)
	for _, shard := range config.Shards {
		if len(shard.Replicas) > 1 && acks != "majority" {
			return s.accepted.Check("rethinkdb's table "+s.name(), []changefeed.UnsafeSetting{{
				Name: "write_acks", Value: acks, Risk: changefeed.RiskFailover, Remedy: "set it to majority in the table's config()",
			}})
		}
	}
	return nil
}

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: rethinkdb: "+format, append([]any{changefeed.ErrUnsuitable}, args...)...)
}

// Create implements [changefeed.Store].
func (s *Store) Create(ctx context.Context, blank changefeed.Record) error {
	both, end, err := s.feeds.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := check(blank); err != nil {
		return err
	}
	return s.explain(ctx, "create the record in table "+s.name(), s.create(both, blank))
}

// pause is between looks at what nothing tells of.
const pause = 20 * time.Millisecond

func (s *Store) create(ctx context.Context, blank changefeed.Record) error {
	blank.Version = rand.Text()
	doc := document(blank)
	doc["id"] = s.key
	for {
		// Often there is a table, and then no right to make one is needed.
		_, err := s.write(ctx, s.in().Insert(doc, r.InsertOpts{Durability: "hard", Conflict: "error"}))
		k := kindOf(err)
		switch {
		case err == nil, k == duplicate:
			return nil
		case (k == noDatabase || k == noTable) && s.existing:
			return err
		case k == noDatabase:
			_, err = s.ask(ctx, r.DBCreate(s.database))
		case k == noTable:
			if _, err = s.ask(ctx, r.DB(s.database).TableCreate(s.table)); err == nil {
				err = s.unify(ctx)
			}
		case k == ambiguous && !s.existing:
			err = s.unify(ctx)
		case unavailable(err): // a table that was just made has no primary replica yet
		default:
			return err
		}
		switch kindOf(err) {
		case exists, noDatabase, noTable, ambiguous: // somebody else was there
		default:
			if err != nil && !unavailable(err) {
				return err
			}
		}
		select {
		case <-ctx.Done():
			if err != nil {
				return fmt.Errorf("%w: %w", ctx.Err(), err)
			}
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

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
