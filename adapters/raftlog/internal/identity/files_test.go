package identity_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
)

// TestPeers_Many fails if the peers of a registry that is larger than usual cannot be read again.
func TestPeers_Many(t *testing.T) {
	fsys := disk.OS(t.TempDir())
	peers := map[string]identity.Known{}
	for i := range 20_000 {
		peers[fmt.Sprint("peer-", i)] = identity.Known{Instance: strings.Repeat("a", 32), Start: 3, Process: strings.Repeat("b", 32)}
	}
	require.NoError(t, identity.WritePeers(fsys, peers))
	again, err := identity.ReadPeers(fsys)
	require.NoError(t, err)
	require.Equal(t, peers, again)
}
