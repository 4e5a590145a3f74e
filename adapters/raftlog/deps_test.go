package raftlog_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestClient_DoesNotLinkRaftLibrary checks that a program with a client, but without a peer, does not link
// the Raft library.
func TestClient_DoesNotLinkRaftLibrary(t *testing.T) {
	for name, linked := range map[string]bool{".": true, "./api": false, "./client": false} {
		out, err := exec.Command("go", "list", "-deps", name).Output()
		require.NoError(t, err)
		if linked {
			require.Contains(t, string(out), "go.etcd.io/raft/v3\n")
		} else {
			require.NotContains(t, string(out), "go.etcd.io/raft/", name)
		}
	}
}
