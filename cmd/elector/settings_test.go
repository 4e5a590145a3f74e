//go:build unix

package main

import (
	"os"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// parse parses a command line with the command run, without running it, and returns the settings and the command.
func parse(t *testing.T, args ...string) (*settings, *runCommand, error) {
	t.Helper()
	s := &settings{}
	r := &runCommand{settings: s}
	cmd := newRun(r)
	cmd.RunE = func(*cobra.Command, []string) error { return nil }
	root := newRootWith(s, cmd)
	root.SetArgs(args)
	return s, r, root.Execute()
}

// TestInstanceID_IsUnique checks that elector generates a unique name for each instance that has no configured name.
func TestInstanceID_IsUnique(t *testing.T) {
	t.Setenv("ELECTOR_INSTANCE_ID", "")
	host, err := os.Hostname()
	require.NoError(t, err)
	ids := map[string]bool{}
	for _, args := range [][]string{{"run"}, {"run", "--instance-id", ""}, {"run", "--instance-id="}} {
		s, _, err := parse(t, args...)
		require.NoError(t, err)
		require.Contains(t, s.instanceID, host)
		ids[s.instanceID] = true
	}
	require.Len(t, ids, 3, "the names are not unique: %v", ids)
}

// TestSettings_AcceptNamesOfEarlierVersions checks that elector accepts flags, variables and keys by the names that
// earlier versions used, and that the current names have precedence.
func TestSettings_AcceptNamesOfEarlierVersions(t *testing.T) {
	t.Setenv("ELECTOR_KEY", "/from/key")
	t.Setenv("ELECTOR_START_COMMAND", "start")
	t.Setenv("ELECTOR_STOP_COMMAND", "stop")
	t.Setenv("ELECTOR_DATA", "directory")
	s, r, err := parse(t, "--etcd-members", "x:1", "run", "--leader-end-command", "end")
	require.NoError(t, err)
	require.Equal(t, []string{"x:1"}, s.etcd.endpoints)
	require.Equal(t, "/from/key", s.election)
	require.Equal(t, "start", r.beginCommand)
	require.Equal(t, "end", r.endCommand)
	require.Equal(t, "directory", s.raftlog.Dir)

	// As in an older elector, the flags of run may precede the name of the command.
	t.Setenv("ELECTOR_LEADER_BEGIN_COMMAND", "begin")
	_, r, err = parse(t, "--leader-start-command", "flag", "run", "--instance-id", "x")
	require.NoError(t, err)
	require.Equal(t, "flag", r.beginCommand)
	t.Setenv("ELECTOR_CONFIG", writeConfigFile(t, example))
	_, r, err = parse(t, "run")
	require.NoError(t, err)
	require.Equal(t, "begin", r.beginCommand, "the file has no precedence")
	require.Equal(t, 7, r.endTries)
}
