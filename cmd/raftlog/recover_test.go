//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// TestRecover_RestoresClusterAfterLostMajority checks that the command recover makes one peer the cluster after
// the loss of a majority, that the cluster rejects a lost peer when it returns, and that new peers can join.
func TestRecover_RestoresClusterAfterLostMajority(t *testing.T) {
	t.Parallel()
	h := startPeers(t, "a", "b", "c")
	last, _ := h.proposeUpdate("one")
	h.waitForApplied(last)
	h.requireFailure(cmdline.Usage, "", "recover", "--peer-id", "a", "--accept-data-loss")
	h.killPeers("b", "c", "a")
	require.NoError(t, os.RemoveAll(h.dataDir("c"))) // peer b is lost as well, because its machine is down

	r := h.runCommand("recover", "--peer-id", "a")
	require.Equal(t, cmdline.Usage, r.code, r.log)
	require.Contains(t, r.log, "nothing was changed")
	require.Contains(t, r.out, "lost: every update after entry "+last)
	require.Contains(t, r.out, "removed permanently: b, c")
	require.Contains(t, h.requireOutput("recover", "--peer-id", "a", "--accept-data-loss"), "start peer a")
	a := h.startPeer("a")
	h.proposeUpdate("two, by a alone")
	h.startPeer("b").waitForLine(t, "recovered without this peer")
	h.killPeers("b")
	h.startPeer("d", "--addr", h.addressOf("d"))
	h.startPeer("e", "--addr", h.addressOf("e"))
	h.requireOutput("config", "--add", h.addressOf("d")+"/d", "--add", h.addressOf("e")+"/e")
	a.stop(t, syscall.SIGKILL)
	h.file = h.writeConfig("d", "e")
	h.proposeUpdate("three, by d and e")
	h.requireLog("tail", "--once")
}

// TestExportAndRestore_StartsNewCluster checks that the commands export and restore start a new cluster that
// knows the request IDs of the old cluster and continues with larger indexes.
func TestExportAndRestore_StartsNewCluster(t *testing.T) {
	t.Parallel()
	h := startPeers(t, "a")
	last, id := h.proposeUpdate("one")
	h.requireOutput("compact", "--peer-id", "a", "-i", last, "-p", "a", "--wait", "15s")
	file := filepath.Join(h.dir, "exported")
	require.Contains(t, h.requireOutput("export", "--peer-id", "a", file), "through entry "+last)
	h.requireFailure(cmdline.Usage, "", "export", "--peer-id", "a", file)
	h.killPeers("a")
	require.NoError(t, os.RemoveAll(h.dataDir("a")))
	h.requireFailure(cmdline.Usage, "", "restore", "--peer-id", "b", file)
	require.Contains(t, h.requireOutput("restore", "--peer-id", "b", "--addr", h.addressOf("b"), "--index-gap", "1000", file), "peer b of cluster test")
	h.file = h.writeConfig("b")
	h.startPeer("b")
	require.Equal(t, last+" "+id+"\n", h.requireOutput("propose", "--request-id", id, "one"), "the request ID is known")
	next := h.requireOutput("propose", "two")
	require.Len(t, strings.Fields(next)[0], 4, "the index must be above 1000")
}
