package postgres

import (
	"context"
	"fmt"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// checkSafety returns an error if the server can lose acknowledged writes and the user has not
// accepted the risk. It counts the standbys that are connected or have a replication slot.
func (s *Store) checkSafety(ctx context.Context, version int) error {
	var fsync, names, connected string
	var standbys, behind, hidden int
	err := s.queryRow(ctx, standbysSQL(version), nil, []any{&fsync, &names, &standbys, &behind, &hidden, &connected})
	if err != nil {
		return err
	}
	var found []changefeed.UnsafeSetting
	if remedy := unsafeStandbys(names, standbys, behind, hidden); remedy != "" {
		if connected != "" {
			remedy += "; connected: " + connected
		}
		found = append(found, changefeed.UnsafeSetting{
			Name: "synchronous_standby_names", Value: names, Risk: changefeed.RiskFailover, Remedy: remedy,
		})
	}
	if fsync != "on" {
		found = append(found, changefeed.UnsafeSetting{
			Name: "fsync", Value: fsync, Risk: changefeed.RiskPowerLoss, Remedy: "set it to on",
		})
	}
	server := s.shared.pool.Config().ConnConfig
	return s.accepted.Check(fmt.Sprintf("postgres at %s:%d", server.Host, server.Port), found)
}

// standbysSQL returns a query of the settings fsync and synchronous_standby_names; of the number of standbys; of
// how many connected standbys the latter setting does not name, and of how many the user may not see that; and of
// the names of the connected standbys. A standby that the setting names and that still catches up has the state
// "potential", and commits wait for it. Users without the role pg_read_all_stats see the number of standbys, but
// not their names and states. Logical subscribers and running backups do not count.
func standbysSQL(version int) string {
	backups := ""
	if version >= 13_00_00 {
		backups = "AND NOT EXISTS (SELECT FROM pg_stat_progress_basebackup b WHERE b.pid = r.pid)"
	}
	return `WITH connected AS (
			SELECT r.application_name AS name, r.sync_state AS state FROM pg_stat_replication r
			WHERE coalesce(r.state, '') <> 'backup' ` + backups + `
				AND NOT EXISTS (SELECT FROM pg_replication_slots l WHERE l.active_pid = r.pid AND (l.slot_type = 'logical' OR l.temporary))),
		absent AS (SELECT FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT active AND NOT temporary)
		SELECT current_setting('fsync'), current_setting('synchronous_standby_names'),
			(SELECT count(*) FROM connected) + (SELECT count(*) FROM absent),
			(SELECT count(*) FROM connected WHERE state = 'async'),
			(SELECT count(*) FROM connected WHERE state IS NULL),
			(SELECT coalesce(string_agg(name || ' (' || state || ')', ', ' ORDER BY name), '') FROM connected)`
}
