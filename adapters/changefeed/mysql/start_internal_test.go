package mysql

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// TestUnsafeSettings_FindsReplicasInListOfProcesses checks that unsafeSettings returns replicas that only the
// list of processes shows, as on MySQL, and does not return settings that the server does not have.
func TestUnsafeSettings_FindsReplicasInListOfProcesses(t *testing.T) {
	settings := map[string]string{"innodb_flush_log_at_trx_commit": "1", "log_bin": "ON", "sync_binlog": "1", "binlog_readers": "0"}
	require.Empty(t, unsafeSettings(settings))
	settings["binlog_readers"] = "2"
	found := unsafeSettings(settings)
	require.Len(t, found, 1)
	require.Equal(t, changefeed.RiskFailover, found[0].Risk)
	require.Equal(t, "2", found[0].Value)
}
