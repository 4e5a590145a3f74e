//go:build unix

package integrationtest

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWatch_DataChangeUsesNoCPU fails if a follower loops after a change of its predecessor's data.
func TestWatch_DataChangeUsesNoCPU(t *testing.T) {
	conn, other := connect(t), connect(t)
	node := createElectionNode(t, conn)
	leader, _ := startLeader(t, conn, node)
	follower := startFollower(t, conn, node, leader)
	_, err := other.Set(leader.ID(), []byte("changed"), -1)
	require.NoError(t, err)
	before := cpuTime(t)
	follower.requireNoStatus(t, time.Second)
	require.Less(t, cpuTime(t)-before, 250*time.Millisecond, "the idle follower uses too much CPU time")
}

// cpuTime returns the CPU time that this process has used.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
