package main

import (
	"context"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memoryDir returns a directory in memory if the system has such a file system. The election timeout of
// the demonstration is shorter than one sync of a busy disk.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := testenv.MakeDir("raftlog-kv")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// TestRunDemo_AppliesEachWriteOnce checks that each write is applied once, and that a peer leads the election.
func TestRunDemo_AppliesEachWriteOnce(t *testing.T) {
	t.Setenv("TMPDIR", memoryDir(t))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out strings.Builder
	require.NoError(t, runDemo(ctx, &out))
	t.Log("\n" + out.String())
	require.LessOrEqual(t, strings.Count(out.String(), "\n"), 22)
	require.Equal(t, 3, strings.Count(out.String(), "has: apples=3 figs=1 plums=8 (5 writes)\n"), "a write is missing, or was applied twice")
	repeated := regexp.MustCompile(`set figs 1, request (\S+): entry (\d+)`).FindAllStringSubmatch(out.String(), -1)
	require.Len(t, repeated, 2)
	require.Equal(t, repeated[0], repeated[1])
	require.Len(t, regexp.MustCompile(`[abc] leads the harvest, token \d+`).FindAllString(out.String(), -1), 3)
}

// TestRunPeer_ExecutesCommandsAndKeepsData checks that each command prints its result, and that the map is the
// same after a restart of the peer.
func TestRunPeer_ExecutesCommandsAndKeepsData(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr, dir := l.Addr().String(), memoryDir(t)
	require.NoError(t, l.Close())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var out strings.Builder
	lines := "set a 1 2\nset b 3\nget a\nget c\ndelete a\nlist\nwhat\n"
	require.NoError(t, runPeer(ctx, "x", "x@"+addr, dir, "0123456789abcdef", "", strings.NewReader(lines), &out))
	require.Equal(t, []string{"1 2", `error: key "c" does not exist`}, strings.Split(out.String(), "\n")[2:4])
	require.Contains(t, out.String(), "\nb=3 (3 writes)\nerror: unknown command \"what\"")
	out.Reset()
	require.NoError(t, runPeer(ctx, "x", "x@"+addr, dir, "0123456789abcdef", "", strings.NewReader("list"), &out))
	require.Equal(t, "b=3 (3 writes)\n", out.String())
	require.ErrorContains(t, runPeer(ctx, "y", "x@"+addr, dir, "", "", strings.NewReader(""), io.Discard), "--peers")
}

// TestRunPeer_ReturnsWhenContextIsDone checks that runPeer returns when the context is done, even while it
// waits for input.
func TestRunPeer_ReturnsWhenContextIsDone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in, input := io.Pipe()
	defer input.Close()
	ended := make(chan error, 1)
	go func() {
		ended <- runPeer(ctx, "x", "x@127.0.0.1:0", memoryDir(t), "0123456789abcdef", "", in, io.Discard)
	}()
	_, err := io.WriteString(input, "what\n") // returns when the peer has read the line
	require.NoError(t, err)
	cancel()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the peer has not stopped")
	}
}

// TestStore_SnapshotRestoresEarlierState checks that a snapshot restores the map as of the call of Snapshot,
// without later updates.
func TestStore_SnapshotRestoresEarlierState(t *testing.T) {
	s := newStore()
	require.NoError(t, s.Apply([]api.Entry{{Data: []byte(`{"key":"a","value":"1"}`)}, {Data: []byte("no update")}}, 2))
	snapshot, err := s.Snapshot()
	require.NoError(t, err)
	require.NoError(t, s.Apply([]api.Entry{{Data: []byte(`{"key":"a","delete":true}`)}}, 3))
	var b strings.Builder
	_, err = snapshot.WriteTo(&b)
	require.NoError(t, err)
	restored := newStore()
	require.NoError(t, restored.Restore(2, strings.NewReader(b.String())))
	require.Equal(t, "a=1 (1 writes)", restored.String(), "the map when the snapshot was taken")
	require.Equal(t, " (2 writes)", s.String())
}
