//go:build unix && !no_raftlog

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// TestRaftlog_CommandsConnectAsClients checks that status, watch and resign connect to the peers as clients: they
// show the leader and the followers, and can request the leader to resign.
func TestRaftlog_CommandsConnectAsClients(t *testing.T) {
	t.Parallel()
	r := newRaftlogHarness(t)
	r.flags = append(r.flags, "--session-timeout", "10s") // the session timeout is long, so that the leadership moves only on request
	all := map[string]*process{}
	for _, name := range []string{"a", "b", "c"} {
		all[name] = r.run(name, exclusive, "--value", name+":80")
	}
	first := r.waitForLeader(all)
	watch := r.command("watch")
	waitForLeads := func(name string) {
		t.Helper()
		watch.output.WaitForLine(t, patience, name+" leads", func(line string) bool { return strings.Contains(line, " "+name+" leads") })
	}
	waitForLeads(first)
	for _, p := range all {
		if p != all[first] {
			p.waitForLog("follower")
		}
	}
	status := r.command("status", "--is-leader", first)
	require.Contains(t, status.waitForOutput("leader"), first+":80")
	require.Equal(t, cmdline.OK, status.exitCode())

	resign := r.command("resign")
	resign.waitForOutput(first + " has handed over")
	require.Equal(t, cmdline.OK, resign.exitCode())
	second := r.waitForLeader(processesExcept(all, first))
	waitForLeads(second)
	all[first].waitForLog("follower") // the former leader has joined again
	watch.terminate()
	for _, name := range []string{first, second} {
		require.Equal(t, 1, strings.Count(watch.output.Text(), " "+name+" leads"), watch.output.Text())
	}
	r.requireNoOverlap()

	for file, reason := range map[string]string{
		r.writeSecret("wrong", "another secret, as long as it has to be"): "the secret differs",
		filepath.Join(r.dir, "secret"):                                    "clients need the secret of client-secret-file",
	} {
		wrong := r.command("status", "--client-secret-file", file)
		text := wrong.waitForLog("elector: ")
		require.Contains(t, text, "must be those of the peers")
		require.Contains(t, text, reason)
		require.Equal(t, cmdline.Permanent, wrong.exitCode())
	}
	require.Equal(t, cmdline.NoLeader, r.command("status", "--election", "other").exitCode())
	require.Equal(t, cmdline.Usage, r.command("end").exitCode(), "the electors would exit, and with them the log")
}
