package zktest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestWithoutTTL_RejectsTTLNodes checks that a server with WithoutTTL rejects the creation of TTL nodes, and no
// other creation.
func TestWithoutTTL_RejectsTTLNodes(t *testing.T) {
	s := zktest.Start(t, zktest.WithoutTTL())
	c, _ := connect(t, s, 10*time.Second)
	_, err := c.CreateTTL("/ttl", nil, zk.FlagTTL, openACL, time.Hour)
	assert.True(t, err != nil && strings.Contains(err.Error(), "-6"), "create with TTL: %v", err)
	mustCreate(t, c, "/a", "", 0)
}

// TestNewServer_RejectsInvalidOptions checks that NewServer, or Listen for an address, returns an error for an
// invalid option.
func TestNewServer_RejectsInvalidOptions(t *testing.T) {
	for _, o := range []zktest.Option{
		zktest.WithTick(0), zktest.WithMaxPacket(10), zktest.WithSessionTimeouts(time.Minute, time.Second), zktest.WithAddr("nowhere"),
		zktest.WithSessionTimeouts(1<<31*time.Millisecond, 1<<32*time.Millisecond),
	} {
		s, err := zktest.NewServer(o)
		if err == nil {
			_, err = s.Listen()
			s.Close()
		}
		assert.Error(t, err, "the option is accepted")
	}
}
