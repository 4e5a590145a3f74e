package zktest_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestSetSequence_OverflowsLikeRealServer checks that the sequence numbers around the overflow are those of a real
// server.
func TestSetSequence_OverflowsLikeRealServer(t *testing.T) {
	s := zktest.Start(t)
	c, _ := connect(t, s, 10*time.Second)
	mustCreate(t, c, "/q", "", 0)
	require.NoError(t, s.SetSequence("/q", 2147483646))
	assert.Equal(t, "/q/n-2147483646", mustCreate(t, c, "/q/n-", "", zk.FlagSequence))
	assert.Equal(t, "/q/n-2147483647", mustCreate(t, c, "/q/n-", "", zk.FlagSequence))
	_, err := c.Create("/q/n-", nil, zk.FlagSequence, openACL)
	assert.ErrorIs(t, err, zk.ErrNodeExists, "after the greatest number")
	require.NoError(t, s.SetSequence("/q", -5))
	assert.Equal(t, "/q/n--000000005", mustCreate(t, c, "/q/n-", "", zk.FlagSequence))
	assert.ErrorIs(t, s.SetSequence("/none", 1), zk.ErrNoNode)
}
