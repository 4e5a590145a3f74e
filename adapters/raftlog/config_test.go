package raftlog_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// TestOpen_RejectsInvalidConfig checks that Open rejects a Config whose fields are missing, out of range or
// contradictory, and that repeated calls report the same field.
func TestOpen_RejectsInvalidConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, 3)
		for name, change := range map[string]func(*raftlog.Config){
			"no cluster":    func(c *raftlog.Config) { c.Cluster = "" },
			"no ID":         func(c *raftlog.Config) { c.ID = "" },
			"no UTF-8":      func(c *raftlog.Config) { c.ID = "\xff" },
			"no address":    func(c *raftlog.Config) { c.Addr = "" },
			"no port":       func(c *raftlog.Config) { c.Addr = "host0" },
			"no peers":      func(c *raftlog.Config) { c.Peers = nil },
			"ID used twice": func(c *raftlog.Config) { c.Peers = append(slices.Clone(c.Peers), api.Peer{ID: "p1", Addr: "h:1"}) },
			"address used twice": func(c *raftlog.Config) {
				c.Peers = append(slices.Clone(c.Peers), api.Peer{ID: "p9", Addr: "host1:1"})
			},
			"other address of the peer":   func(c *raftlog.Config) { c.Peers = []api.Peer{{ID: "p0", Addr: "elsewhere:1"}} },
			"no authentication":           func(c *raftlog.Config) { c.Insecure = false },
			"short secret":                func(c *raftlog.Config) { c.Insecure, c.Secret = false, []byte("short") },
			"two kinds of authentication": func(c *raftlog.Config) { c.Secret = make([]byte, 32) },
			"short election timeout":      func(c *raftlog.Config) { c.ElectionTimeout = 99 * time.Millisecond },
			"long heartbeat":              func(c *raftlog.Config) { c.Heartbeat = 150 * time.Millisecond },
			"negative join timeout":       func(c *raftlog.Config) { c.JoinTimeout = -1 },
			"short window":                func(c *raftlog.Config) { c.Window = time.Second },
			"large data":                  func(c *raftlog.Config) { c.MaxData = 17 << 20 },
			"negative data":               func(c *raftlog.Config) { c.MaxData = -1 },
			"negative request IDs":        func(c *raftlog.Config) { c.MaxRequestIDs = -1 },
		} {
			_, err := h.openPeer(h.peers[0], change)
			require.ErrorIs(t, err, api.ErrInvalid, name)
		}
		for range 20 {
			_, err := h.openPeer(h.peers[0], func(c *raftlog.Config) {
				c.Insecure, c.Secret, c.ClientSecret = false, []byte("short"), []byte("short too")
			})
			require.ErrorContains(t, err, "Config: Secret has 5 bytes", "each start reports the same defect")
		}
		h.startAll()
		h.proposeAll(t, h.peers[0], "x")
	})
}
