//go:build unix

package main

import (
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// TestPlanVoters_RejectsImpossibleChange checks that planVoters adds and removes the requested peers, and
// rejects peers that exist already or do not exist.
func TestPlanVoters_RejectsImpossibleChange(t *testing.T) {
	a, b, c := api.Peer{ID: "a", Addr: "h:1"}, api.Peer{ID: "b", Addr: "h:2"}, api.Peer{ID: "h:3", Addr: "h:3"}
	now := []api.Peer{a, b, c}
	d := api.Peer{ID: "d", Addr: "h:4"}
	for _, text := range []string{"b", "h:2", "tcp://h:2", "h:2/b"} {
		got, err := planVoters(now, []api.Peer{d}, []string{text})
		require.NoError(t, err, text)
		require.Equal(t, []api.Peer{a, c, d}, got, text)
	}
	for _, text := range []string{"x", "h:9", "h:2/x", "h:9/b"} {
		_, err := planVoters(now, nil, []string{text})
		require.Equal(t, cmdline.Missing, exitCode(err), text)
	}
	for _, p := range []api.Peer{a, {ID: "a", Addr: "h:9"}, {ID: "z", Addr: "h:1"}} {
		_, err := planVoters(now, []api.Peer{p}, nil)
		require.Equal(t, cmdline.Exists, exitCode(err), p)
	}
	_, err := planVoters(now, nil, []string{"a", "b", "h:3"})
	require.Equal(t, cmdline.Usage, exitCode(err))
	require.Equal(t, []api.Peer{a, b, c}, now)
	require.True(t, isInEffect(now, []api.Peer{a}, []string{"x", "h:9"}))
	require.False(t, isInEffect(now, []api.Peer{a, d}, nil))
	require.False(t, isInEffect(now, []api.Peer{{ID: "a", Addr: "h:9"}}, nil))
	require.False(t, isInEffect(now, nil, []string{"x", "b"}))
}

// TestConfig_AddsAndRemovesPeers checks that the command config adds and removes peers, makes a change that is
// repeated with its request ID once, and rejects an invalid change. This covers defect Z3 of ØMQ Raft, whose
// tool did not exit while the cluster was idle.
func TestConfig_AddsAndRemovesPeers(t *testing.T) {
	t.Parallel()
	h := startPeers(t, "a", "b", "c")
	index, id := h.proposeUpdate("first")
	require.Equal(t, index+" "+id+"\n", h.requireOutput("propose", "--request-id", id, "first"), "the request ID is known")
	h.requireFailure(cmdline.Failed, "used for other data", "propose", "--request-id", id, "other data")
	created := strings.TrimSpace(runProgram(t, nil, "new-id").out)
	second := h.requireOutput("propose", "--request-id", created, "second")
	require.Contains(t, second, created)
	h.acknowledged[strings.Fields(second)[0]] = "second"
	require.Equal(t, second, h.requireOutput("propose", "--request-id", created, "second"))

	// The configuration file does not contain the fourth peer.
	h.startPeer("d", "--addr", h.addressOf("d"))
	require.Contains(t, h.requireOutput("config", "--dry-run", "--add", "tcp://"+h.addressOf("d")+"/d"), "nothing was changed")
	change := api.NewRequestID().String()
	r := h.runCommand("config", "--add", "tcp://"+h.addressOf("d")+"/d", "--request-id", change)
	require.Zero(t, r.code, r.log)
	require.Less(t, r.duration, 10*time.Second)
	_, complete, ok := strings.Cut(strings.TrimSpace(r.out), "complete at entry ")
	require.True(t, ok, r.out)
	h.waitForApplied(complete)
	require.Equal(t, []string{"a", "b", "c", "d"}, peerIDs(h.waitForLeader().Peers))
	// A repeated change returns the first result.
	require.Contains(t, h.requireOutput("config", "--add", "tcp://"+h.addressOf("d")+"/d", "--request-id", change), "complete at entry "+complete)
	r = h.runCommand("config", "--add", "tcp://"+h.addressOf("d")+"/d", "--request-id", api.NewRequestID().String())
	require.Equal(t, cmdline.Exists, r.code, "another request ID is another change: %s", r.log)

	// The command exits even if the cluster is idle.
	r = h.runCommand("config")
	require.Zero(t, r.code, r.log)
	require.Less(t, r.duration, 10*time.Second)
	for _, id := range []string{"a", "b", "c", "d"} {
		require.Contains(t, r.out, "tcp://"+h.addressOf(id)+"/"+id)
	}
	require.Contains(t, r.out, "(leader)")

	h.requireFailure(cmdline.Exists, "", "config", "--add", h.addressOf("d")+"/d")
	h.requireFailure(cmdline.Missing, "", "config", "--delete", "127.0.0.1:1/x")
	h.requireFailure(cmdline.Usage, "", "config", "--replace", h.addressOf("a")+"/a", "--delete", "b")

	// Remove the leader.
	leader := h.waitForLeader().Leader.ID
	change = api.NewRequestID().String()
	r = h.runCommand("config", "--delete", leader, "--request-id", change)
	require.Zero(t, r.code, r.log)
	require.Less(t, r.duration, 10*time.Second)
	h.peers[leader].waitForLine(t, "role=removed") // the removed peer learns of the change after the others
	h.peers[leader].waitForLine(t, "needs another ID")
	require.Contains(t, h.requireOutput("config", "--delete", leader, "--request-id", change), "complete at entry")
	h.requireFailure(cmdline.Missing, "", "config", "--delete", leader)
	s := h.waitForLeader()
	require.NotEqual(t, leader, s.Leader.ID)
	require.NotContains(t, peerIDs(slices.DeleteFunc(s.Peers, func(p peerReport) bool { return p.Info == nil || p.Info.Role == "removed" })), leader)
	require.Zero(t, h.peers[leader].stop(t, syscall.SIGTERM))
	h.proposeUpdate("without the first leader")
	h.requireLog("tail", "--once")
	h.requireFailure(cmdline.Usage, "removed", "config", "--add", h.addressOf(leader)+"/"+leader)

	// Adding a peer that does not answer fails, changes nothing, and does not prevent the next change.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	change = api.NewRequestID().String()
	// Repeat the command while it exits with Unknown, because on a busy machine the reply may come after
	// --wait.
	for r.code = cmdline.Unknown; r.code == cmdline.Unknown; {
		r = h.runCommand("config", "--add", silent.Addr().String()+"/x", "--wait", "5s", "--request-id", change)
	}
	require.Equal(t, cmdline.Failed, r.code, r.log)
	require.Contains(t, r.log, "nothing was changed")
	h.requireOutput("config", "--delete", "d")
}
