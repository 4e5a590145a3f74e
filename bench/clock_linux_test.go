package main

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestProcessorTime_IncludesAllThreads checks that processorTime includes the time that other threads of this process
// have used.
func TestProcessorTime_IncludesAllThreads(t *testing.T) {
	before, err := processorTime(os.Getpid())
	require.NoError(t, err)
	used := make(chan struct{})
	go func() {
		defer close(used)
		for end := before + 20*time.Millisecond; ; {
			if now, err := processorTime(os.Getpid()); err != nil || now >= end {
				return
			}
		}
	}()
	<-used
	after, err := processorTime(os.Getpid())
	require.NoError(t, err)
	require.GreaterOrEqual(t, after-before, 20*time.Millisecond)
}

// TestFindChild_FindsProcessByArgument checks that findChild finds a child process by one of its command-line
// arguments, so that the benchmark can measure the processor time of its server.
func TestFindChild_FindsProcessByArgument(t *testing.T) {
	const argument = "3600.0625" // this argument is unique among the child processes
	child := exec.Command("sleep", argument)
	require.NoError(t, child.Start())
	defer func() {
		require.NoError(t, child.Process.Kill())
		_ = child.Wait()
	}()
	pid, err := findChild(argument)
	require.NoError(t, err)
	require.Equal(t, child.Process.Pid, pid)
	used, err := processorTime(pid)
	require.NoError(t, err)
	require.Less(t, used, time.Minute)
	_, err = findChild("no such argument")
	require.Error(t, err)
}
