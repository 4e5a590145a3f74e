package rethinkdb

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

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
