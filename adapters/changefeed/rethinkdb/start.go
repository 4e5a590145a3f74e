package rethinkdb

import (
	"context"
	"encoding/json"
	"strings"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Start implements [changefeed.Store]: it checks the table, the record and the
// permissions. It tests the permission to write by an update that does not change the
// record. If the table can lose acknowledged writes, Start returns a
// [changefeed.UnsafeError] unless [WithRisk] accepts the risk.
func (s *Store) Start(ctx context.Context) error {
	return s.runner.Do(ctx, "check table "+s.tableName(), s.checkTable)
}

// checkTable checks the table, the record and the permissions.
func (s *Store) checkTable(ctx context.Context) error {
	raw, err := s.query(ctx, s.tableTerm().Get(s.key))
	switch kind := errorKindOf(err); {
	case kind == ambiguousTable && !s.withoutCreate:
		return nil // Several tables have the name. Create will remove the duplicates.
	case kind == ambiguousTable:
		return s.runner.Unsuitable("there are several tables %s (%w); keep one of them, using their IDs in the table rethinkdb.table_config", s.tableName(), err)
	case (kind == noDatabase || kind == noTable) && s.withoutCreate:
		return s.runner.Unsuitable("table %s does not exist, and the store is configured not to create it (%w); create it with write_acks majority", s.tableName(), err)
	case kind == noDatabase || kind == noTable:
		return nil
	case err != nil:
		return err
	}
	if string(raw) != "null" {
		if _, err := s.decode(raw); err != nil {
			return err
		}
	}
	if _, err := s.write(ctx, s.tableTerm().Get(s.key).Update(map[string]any{}, r.UpdateOpts{Durability: "soft"})); err != nil {
		return err
	}
	return s.checkConfig(ctx)
}

// checkConfig returns an error if the table can lose acknowledged writes and the user has not
// accepted the risk. If the user may not read the configuration, checkConfig assumes the server's
// default, which is safe.
func (s *Store) checkConfig(ctx context.Context) error {
	raw, err := s.query(ctx, r.DB(s.database).Table(s.table).Config())
	if errorKindOf(err) == permissionDenied {
		return nil
	}
	if err != nil {
		return err
	}
	var config struct {
		PrimaryKey string          `json:"primary_key"`
		WriteAcks  json.RawMessage `json:"write_acks"` // WriteAcks is a text, or a list in old releases.
		Shards     []struct{ Replicas []string }
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return err
	}
	if config.PrimaryKey != "id" {
		return s.runner.Unsuitable("the primary key of table %s is %q, not id; use another table", s.tableName(), config.PrimaryKey)
	}
	acks := strings.Trim(string(config.WriteAcks), `"`)
	for _, shard := range config.Shards {
		if len(shard.Replicas) > 1 && acks != "majority" {
			return s.accepted.Check("rethinkdb's table "+s.tableName(), []changefeed.UnsafeSetting{{
				Name: "write_acks", Value: acks, Risk: changefeed.RiskFailover, Remedy: "set it to majority in the table's config()",
			}})
		}
	}
	return nil
}
