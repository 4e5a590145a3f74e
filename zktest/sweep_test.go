package zktest_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestSweep_DeletesEmptyContainers checks that Sweep deletes a container after its last child was deleted, but
// neither a container with children nor one that never had a child.
func TestSweep_DeletesEmptyContainers(t *testing.T) {
	s := zktest.Start(t)
	c, _ := connect(t, s, 10*time.Second)
	for _, p := range []string{"/used", "/unused"} {
		_, err := c.CreateContainer(p, nil, zk.FlagContainer, openACL)
		require.NoError(t, err)
	}
	mustCreate(t, c, "/used/a", "", 0)
	assert.Zero(t, s.Sweep(), "znodes in use were deleted")
	require.NoError(t, c.Delete("/used/a", -1))
	assert.Equal(t, 1, s.Sweep(), "znodes were deleted")
}
