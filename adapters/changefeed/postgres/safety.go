package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// checkSafety refuses servers that can lose acknowledged writes, unless their risks were
// accepted. It sees the standbys that are connected, and those that have a slot.
func (s *Store) checkSafety(ctx context.Context, version int) error {
	var fsync, names, connected string
	var standbys, behind int
	err := s.pool.QueryRow(ctx, standbysSQL(version)).Scan(&fsync, &names, &standbys, &behind, &connected)
	if err != nil {
		return err
	}
	var found []changefeed.UnsafeSetting
	if remedy := unsafeStandbys(names, standbys, behind); remedy != "" {
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
	server := s.pool.Config().ConnConfig
	return s.accepted.Check(fmt.Sprintf("postgres at %s:%d", server.Host, server.Port), found)
}

// standbysSQL selects the settings, the number of standbys, how many of those are known not
// to be named in the setting, and the names of the connected ones. A standby that is named
// and still catches up is "potential", and commits wait for it. Users without the rights of
// pg_read_all_stats see no names and no states, but see how many standbys there are. Logical
// subscribers and running backups do not count.
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
			(SELECT coalesce(string_agg(name || ' (' || state || ')', ', ' ORDER BY name), '') FROM connected)`
}

// unsafeStandbys returns the reason for which a standby can lack acknowledged writes. It is
// empty if there is no standby, or if each commit waits for all standbys. It is not enough
// that a standby is called synchronous: in a quorum, and among the candidates of FIRST, a
// commit waits for some of them, and any of them can be promoted.
func unsafeStandbys(setting string, standbys, behind int) string {
	const all = "name each standby there, once, and wait for all of them, as in FIRST 2 (a, b)"
	if strings.TrimSpace(setting) == "" {
		if standbys == 0 {
			return ""
		}
		return fmt.Sprintf("commits wait for none of %d standbys or replication slots; %s", standbys, all)
	}
	wait, names, err := parseStandbyNames(setting)
	distinct := map[string]bool{}
	for _, name := range names {
		distinct[name] = true
	}
	switch {
	case err != nil:
		return fmt.Sprintf("the setting is not understood (%v); %s", err, all)
	case distinct["*"]:
		return "* stands for any standby; " + all
	case wait < len(distinct):
		return fmt.Sprintf("a commit waits for %d of %d standbys; %s", wait, len(distinct), all)
	case standbys > wait:
		return fmt.Sprintf("a commit waits for %d standbys, and there are %d standbys or replication slots; %s", wait, standbys, all)
	case behind > 0:
		return fmt.Sprintf("%d of the connected standbys are not named; %s", behind, all)
	}
	return ""
}
