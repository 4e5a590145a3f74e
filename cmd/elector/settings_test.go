//go:build unix

package main

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// parse returns what run would run with.
func parse(t *testing.T, args ...string) (*settings, *runner, error) {
	t.Helper()
	s := &settings{}
	r := &runner{settings: s}
	cmd := newRun(r)
	cmd.RunE = func(*cobra.Command, []string) error { return nil }
	root := rootOf(s, cmd)
	root.SetArgs(args)
	return s, r, root.Execute()
}

func TestInstanceIDIsNeverEmpty(t *testing.T) {
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
	require.Len(t, ids, 3, "not unique: %v", ids)
}

func TestFlagsAndVariables(t *testing.T) {
	t.Setenv("ELECTOR_INSTANCE_ID", "from variable")
	t.Setenv("ELECTOR_KEY", "/from/key")
	t.Setenv("ELECTOR_START_COMMAND", "start")
	t.Setenv("ELECTOR_STOP_COMMAND", "stop")
	t.Setenv("ELECTOR_ERROR_TIMEOUT", "7s")
	s, r, err := parse(t, "--backend", "zookeeper", "run", "--leader-end-command", "end")
	require.NoError(t, err)
	require.Equal(t, "zookeeper", s.backend)
	require.Equal(t, "from variable", s.instanceID)
	require.Equal(t, "/from/key", s.election)
	require.Equal(t, "start", r.beginCommand)
	require.Equal(t, "end", r.endCommand, "the command line counts first")
	require.Equal(t, 7*time.Second, r.errorTimeout)

	// The predecessor had all flags before the command.
	t.Setenv("ELECTOR_LEADER_BEGIN_COMMAND", "begin")
	_, r, err = parse(t, "--leader-start-command", "by flag", "run", "--instance-id", "x")
	require.NoError(t, err)
	require.Equal(t, "by flag", r.beginCommand)
	_, r, err = parse(t, "run")
	require.NoError(t, err)
	require.Equal(t, "begin", r.beginCommand, "the variable of the flag's own name counts first")
	require.Equal(t, "from variable", s.instanceID)

	t.Setenv("ELECTOR_ERROR_TIMEOUT", "soon")
	_, _, err = parse(t, "run")
	require.ErrorContains(t, err, "ELECTOR_ERROR_TIMEOUT")
	require.Equal(t, exitUsage, exitCode(err))
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{"run"},
		{"run", "--leader-begin-command", "x"},
		{"run", "--backend", "none", "--leader-begin-command", "x"},
		{"run", "--backend", "zookeeper", "--leader-begin-command", "x"},
		{"run", "--backend", "zookeeper", "--zookeeper-servers", ",", "--leader-begin-command", "x"},
		{"run", "--backend", "zookeeper", "--zookeeper-servers", "localhost:2181/app", "--leader-begin-command", "x"},
		{"run", "--backend", "zookeeper", "--zookeeper-servers", "x", "--zookeeper-auth", "me", "--leader-begin-command", "x"},
		{"run", "--backend", "zookeeper", "--zookeeper-servers", "x", "--session-timeout", "1ms", "--leader-begin-command", "x"},
		{"run", "--backend", "zookeeper", "--zookeeper-servers", "x", "--ca-file", "/none", "--leader-begin-command", "x"},
		{"run", "--backend", "zookeeper", "--zookeeper-servers", "x", "--cert-file", "/none", "--leader-begin-command", "x"},
		{"run", "--backend", "etcd", "--leader-begin-command", "x"},
		{"run", "--backend", "etcd", "--etcd-endpoints", "x", "--etcd-user", "me", "--leader-begin-command", "x"},
		{"run", "--backend", "etcd", "--etcd-endpoints", "x", "--session-timeout", "900ms", "--leader-begin-command", "x"},
		{"run", "--backend", "etcd", "--etcd-endpoints", "x", "--ca-file", "/none", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--election", "jobs/x", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--lost-grace", "501ms", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--listen", "8080", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--etcd-endpoints", "x", "--leader-begin-command", "x"},
		{"run", "--etcd-endpoints", "x", "--election", "x/", "--leader-begin-command", "x"},
		{"run", "--backend", "changefeed", "--leader-begin-command", "x"},
		{"run", "--store", "memory:", "--leader-begin-command", "x"},
		{"run", "--store", "mysql://x", "--leader-begin-command", "x"},
		{"run", "--store", "redis://x", "--election", "/", "--leader-begin-command", "x"},
		{"run", "--peers", "a=b:1", "--leader-begin-command", "x"},
		{"run", "--peers", "a=b:1", "--peer-id", "a", "--data", "d", "--insecure", "--election", strings.Repeat("x", 2000), "--leader-begin-command", "x"},
		{"run", "--grace", "0s", "--leader-begin-command", "x"},
		{"run", "--end-tries", "0", "--leader-begin-command", "x"},
		{"run", "--log-format", "xml"},
		{"run", "--log-level", "loud"},
		{"run", "--nonsense"},
		{"run", "program"},
		{"nonsense"},
		{"status", "nonsense"},
	} {
		root := newRoot()
		root.SetArgs(args)
		err := root.Execute()
		require.Error(t, err, "%v", args)
		require.Equal(t, exitUsage, exitCode(err), "%v: %v", args, err)
		if args[0] == "run" {
			root = newRoot()
			root.SetOut(io.Discard)
			root.SetArgs(append([]string{"config"}, args[1:]...))
			configErr := root.Execute()
			require.EqualError(t, configErr, strings.ReplaceAll(err.Error(), "elector run", "elector config"))
			require.Equal(t, exitUsage, exitCode(configErr))
		}
	}
	root := newRoot()
	root.SetArgs([]string{"run", "--", "no-such-program"})
	require.Equal(t, exitNotFound, exitCode(root.Execute()))
	root = newRoot()
	root.SetArgs([]string{"run", "--", t.TempDir() + "/"})
	require.Equal(t, exitCannot, exitCode(root.Execute()))
}
