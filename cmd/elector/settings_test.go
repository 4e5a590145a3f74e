//go:build unix

package main

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
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
		{"run", "--backend", "etcd", "--etcd-endpoints", "x:1", "--etcd-user", "me", "--leader-begin-command", "x"},
		{"run", "--backend", "etcd", "--etcd-endpoints", "x:1", "--session-timeout", "900ms", "--leader-begin-command", "x"},
		{"run", "--backend", "etcd", "--etcd-endpoints", "x:1", "--ca-file", "/none", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--election", "jobs/x", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--lost-grace", "501ms", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--listen", "8080", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--etcd-endpoints", "x:1", "--leader-begin-command", "x"},
		{"run", "--etcd-endpoints", "x:1", "--election", "x/", "--leader-begin-command", "x"},
		{"run", "--backend", "changefeed", "--leader-begin-command", "x"},
		{"run", "--store", "memory:", "--leader-begin-command", "x"},
		{"run", "--store", "mysql://x", "--leader-begin-command", "x"},
		{"run", "--store", "redis://x", "--election", "/", "--leader-begin-command", "x"},
		{"run", "--peers", "a=b:1", "--leader-begin-command", "x"},
		{"run", "--peers", "a=b:1", "--peer-id", "a", "--data", "d", "--insecure", "--election", strings.Repeat("x", 2000), "--leader-begin-command", "x"},
		{"run", "--grace", "0s", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--stdin", "--leader-begin-command", "x"},
		{"run", "--backend", "console", "--stdin", "--", "ls"},
		{"run", "--store", "redis://x", "--value", "v", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--value", "a\nb", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--value", strings.Repeat("v", maxValue+1), "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "http://x", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x:99999", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--session-timeout", "2h", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--session-timeout", "5", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--instance-id", "a\nb", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--instance-id", strings.Repeat("x", maxInstanceID+1), "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--listen", ":99999", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--listen", ":nosuch", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--tls=maybe", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--end-tries", "many", "--leader-begin-command", "x"},
		{"run", "--etcd-endpoints", "x", "--leader-begin-command", "x"},
		{"run", "--etcd-endpoints", "x y:1", "--leader-begin-command", "x"},
		{"run", "--etcd-endpoints", "x:99999", "--leader-begin-command", "x"},
		{"run", "--etcd-endpoints", "ftp://x:1", "--leader-begin-command", "x"},
		{"run", "--etcd-endpoints", "http://", "--leader-begin-command", "x"},
		{"run", "--etcd-endpoints", `x"y`, "--leader-begin-command", "x"},
		{"run", "--store", "redis://x:99999", "--leader-begin-command", "x"},
		{"run", "--store", "redis://x", "--store-unsafe", "fire", "--leader-begin-command", "x"},
		{"run", "--store", "redis://x", "--session-timeout", "1ms", "--leader-begin-command", "x"},
		{"run", "--peers", "a=b:99999", "--peer-id", "a", "--data", "d", "--insecure", "--leader-begin-command", "x"},
		{"run", "--peers", "a=b:1", "--peer-id", "a", "--data", "d", "--insecure", "--peer-listen", "1", "--leader-begin-command", "x"},
		{"run", "--peers", "a=b:1", "--peer-id", "a", "--data", "d", "--insecure", "--session-timeout", "2h", "--leader-begin-command", "x"},
		{"run", "--peers", "a=b:1", "--peer-id", "a", "--data", "d", "--leader-begin-command", "x"},
		{"run", "--peers", "a=b:1", "--peer-id", "b", "--leader-begin-command", "x"},
		{"run", "--config", "/none"},
		{"run", "--zookeper-servers", "x"},
		{"status", "--zookeeper-servers", "x", "--timeout", "-1s"},
		{"resign", "--zookeeper-servers", "x", "--timeout", "0s"},
		{"run", "--timeout", "-1s", "--leader-begin-command", "x"},
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
		require.NotContains(t, err.Error(), "\n", "%v", args)
		require.Regexp(t, `for example|such as|did you mean|true nor false|--help\)`, err.Error(), "%v: the user does not learn what to write", args)
		if args[0] == "run" {
			root = newRoot()
			root.SetOut(io.Discard)
			root.SetArgs(append([]string{"config"}, args[1:]...))
			configErr := root.Execute()
			require.EqualError(t, configErr, strings.ReplaceAll(err.Error(), "elector run --help", "elector config --help"))
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

// TestRefusedCredentials shows that an error of authentication names the variables that have
// the credentials, and that other errors are unchanged.
func TestRefusedCredentials(t *testing.T) {
	for _, c := range []struct{ args, cause, want string }{
		{"--zookeeper-servers x", "", "there are no credentials: set ELECTOR_ZOOKEEPER_AUTH (--zookeeper-auth)"},
		{"--zookeeper-servers x --zookeeper-auth me:secret", "", "check the credentials in ELECTOR_ZOOKEEPER_AUTH"},
		{"--etcd-endpoints x:1", "", "there are no credentials: set ELECTOR_ETCD_USER and ELECTOR_ETCD_PASSWORD"},
		{"--etcd-endpoints x:1 --etcd-user me --etcd-password secret", "", "check the credentials in ELECTOR_ETCD_USER"},
		{"--store redis://x", "NOAUTH Authentication required.", "there are no credentials: set ELECTOR_STORE (--store"},
		{"--store redis://x --store-password secret", "WRONGPASS invalid username-password pair", "check the credentials in ELECTOR_STORE"},
		{"--store postgres://me@x/db", `FATAL: password authentication failed for user "me" (SQLSTATE 28P01)`, "ELECTOR_STORE_PASSWORD (--store-password)"},
		{"--store nats://me@x", "nats: Authorization Violation", "ELECTOR_STORE_PASSWORD"},
		{"--store nats://me@x", "", "ELECTOR_STORE_PASSWORD"},
	} {
		s, _, err := parse(t, append([]string{"run"}, strings.Fields(c.args)...)...)
		require.NoError(t, err)
		cause := leaderelection.ErrPermission
		if c.cause != "" {
			cause = errors.New(c.cause)
		}
		err = s.advise(cause)
		require.ErrorIs(t, err, cause)
		require.ErrorContains(t, err, c.want, c.args)
		require.NotContains(t, err.Error(), "secret", c.args)
		require.Equal(t, io.ErrUnexpectedEOF, s.advise(io.ErrUnexpectedEOF))
	}
}
