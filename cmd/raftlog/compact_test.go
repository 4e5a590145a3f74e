//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/offline"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// TestCompact_RejectsExistingTarget checks that the command compact rejects an existing target before it
// queries a peer. No peer is running.
func TestCompact_RejectsExistingTarget(t *testing.T) {
	t.Setenv(secretVariable, "")
	dir := t.TempDir()
	createPeer(t, dir)
	var log strings.Builder
	args := []string{"compact", "-d", dir, "-t", filepath.Join(dir, "peer.json"), "-p", "127.0.0.1:1", "--insecure"}
	require.Equal(t, cmdline.Usage, execute(args, nil, io.Discard, &log), log.String())
	require.Contains(t, log.String(), "peer.json exists")
}

// TestCompact_PeerInstallsSnapshot checks that a running peer installs the snapshot of the command compact,
// that a joining peer receives this snapshot, and that the commands that read files work while peers run and
// after they have exited.
func TestCompact_PeerInstallsSnapshot(t *testing.T) {
	t.Parallel()
	h := startPeers(t, "a", "b", "c")
	last := ""
	for i := range 5 {
		last, _ = h.proposeUpdate(fmt.Sprint("update ", i))
	}
	h.waitForApplied(last)
	// The default index is before the entry of the first request ID within the window.
	r := h.runCommand("compact", "--peer-id", "a", "-p", "a", "--wait", "15s")
	require.Zero(t, r.code, r.log)
	require.Contains(t, r.log, "the peer has installed the snapshot")
	h.requireFailure(cmdline.Nothing, "", "compact", "--peer-id", "a", "-p", "a")
	// Now compact up to a later index.
	target := filepath.Join(h.dir, "a", "compact", "snap.new")
	h.requireOutput("compact", "--peer-id", "a", "-p", h.addressOf("a"), "-i", last, "-t", target, "--wait", "15s")
	h.requireFailure(cmdline.Usage, "not known to be committed", "compact", "--peer-id", "b", "-i", "1000")
	for _, p := range h.waitForLeader().Peers {
		if p.Peer.ID == "a" {
			require.Equal(t, last, fmt.Sprint(p.Info.SnapshotIndex))
		}
	}
	var s offline.Snapshot
	require.NoError(t, json.Unmarshal([]byte(h.requireOutput("inspect", "--peer-id", "a", "--json")), &s))
	require.Equal(t, last, fmt.Sprint(s.Index))
	require.Equal(t, 5, s.RequestIDs)
	require.Contains(t, h.requireOutput("inspect", filepath.Join(h.dir, "a")), "request IDs: 5")

	// A peer that joins receives the snapshot, and the log after it.
	e := h.startPeer("e", "--addr", h.addressOf("e"))
	require.Contains(t, e.output.Text(), "received the snapshot", "peer e must receive the snapshot from a, which it queries first")
	require.Contains(t, e.output.Text(), "index="+last)
	h.requireOutput("config", "--add", h.addressOf("e")+"/e")
	fifth, _ := h.proposeUpdate("with the fifth")
	h.waitForApplied(fifth)
	require.Equal(t, []string{"a", "b", "c", "e"}, peerIDs(h.waitForLeader().Peers))

	// The commands for files work while the peers are running.
	h.requireLog("dump", filepath.Join(h.dir, "b"))
	require.Equal(t, 2, strings.Count(h.requireOutput("dump", "--peer-id", "b", "-i", "2-3", "--format", "hex"), "\n"))
	var l listing
	require.NoError(t, json.Unmarshal([]byte(h.requireOutput("list", "--peer-id", "a", "--json")), &l))
	require.Equal(t, offline.Owner{Cluster: "test", Peer: "a"}, l.Owner)
	require.Len(t, l.Log.Segments, 1)
	require.Len(t, l.Snapshots, 3)
	require.Contains(t, h.requireOutput("list", filepath.Join(h.dir, "a")), "snapshot snap\n")
	for _, p := range []string{"a", "b", "c", "e"} {
		require.Zero(t, h.peers[p].stop(t, syscall.SIGINT))
	}
	// The commands for files work while no peer is running.
	require.Contains(t, h.requireOutput("dump", "--peer-id", "e"), "with the fifth")
	r = h.runCommand("status", "--once", "-t", "300")
	require.Equal(t, cmdline.Failed, r.code)
	require.Contains(t, r.out, "connection refused")
	h.requireFailure(cmdline.Failed, "are the peers running", "config", "-t", "300")
	r = h.runCommand("tail", "-t", "300")
	require.Equal(t, cmdline.Failed, r.code)
	require.Contains(t, r.log, "no peer has answered within 300ms")
	require.Contains(t, r.log, "connection refused")
}
