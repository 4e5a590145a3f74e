//go:build unix && !no_etcd

package main

import (
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestAlso fails if instances of the three versions of a migration work at the same time, or if an instance that
// leads on both backends has no successor of either version, or does not give its program and its commands both tokens.
func TestAlso(t *testing.T) {
	t.Parallel()
	zooKeeper, etcd := zktest.Start(t), dbserver.StartEtcd(t, dbserver.EtcdConfig{})
	h := newHarness(t, []string{"--election", "/jobs/one", "--session-timeout", session.String(), "--grace", "10ms"})
	oldOnly := []string{"--backend", "zookeeper", "--zookeeper-servers", zooKeeper.Addr()}
	newOnly := []string{"--backend", "etcd", "--etcd-endpoints", etcd.Addr(0), "--election", "/jobs/two"}
	moving := slices.Concat(oldOnly, []string{"--also", "etcd", "--also-election", "/jobs/two", "--etcd-endpoints", etcd.Addr(0)})

	a := h.lead("a", stubborn, oldOnly...)
	b := h.follow("b", stubborn, moving...)
	const tokens = `echo "$ELECTOR_ROLE $ELECTOR_TOKEN,$ELECTOR_ALSO_TOKEN."`
	c := h.follow("c", tokens+"; "+stubborn, slices.Concat(moving, []string{"--leader-end-command", tokens})...)
	a.terminate()
	b.waitForOutput("works")
	b.signal(syscall.SIGKILL)
	program := c.waitForOutput("leader")
	require.Regexp(t, `^leader [1-9][0-9]*,[1-9][0-9]*\.$`, program)
	c.waitForOutput("works")
	d := h.follow("d", stubborn, newOnly...)
	c.terminate()
	require.Equal(t, program, c.waitForOutput("leader"), "the end command")
	d.waitForOutput("works")
	h.requireOrder("a", "b", "c", "d")
}

// TestAlso_Usage fails if invalid settings of a migration are accepted, or the error does not name the flag.
func TestAlso_Usage(t *testing.T) {
	for text, args := range map[string][]string{
		"--also zookeeper: it is the backend of --backend": {"--also", "zookeeper"},
		"--also paper: not one of this build's backends":   {"--also", "paper"},
		"--also-election /jobs/two: it needs --also":       {"--also-election", "/jobs/two"},
		`--also-election: invalid argument: path "report" does not begin with a slash; for example --also-election /`: {
			"--backend", "changefeed", "--store", "nats://127.0.0.1:1", "--election", "report", "--also", "zookeeper",
		},
		"--etcd-endpoints": {"--also", "etcd"},
		"--value: backend changefeed cannot advertise a value": {"--also", "changefeed", "--store", "memory:x", "--value", "v"},
	} {
		all := slices.Concat([]string{"run", "--backend", "zookeeper", "--zookeeper-servers", "127.0.0.1:1"}, args, []string{"--", "true"})
		p := start(t, all...)
		p.requireExit(cmdline.Usage)
		p.waitForLog(text)
	}
}
