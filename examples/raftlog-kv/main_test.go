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

// inMemory is a folder in memory, if this machine has such: the story's election timeout is
// shorter than what a disk may take for one sync.
func inMemory(t *testing.T) string {
	t.Helper()
	dir, err := testenv.MakeDir("raftlog-kv")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func TestStory(t *testing.T) {
	t.Setenv("TMPDIR", inMemory(t))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out strings.Builder
	require.NoError(t, tell(ctx, &out))
	t.Log("\n" + out.String())
	require.LessOrEqual(t, strings.Count(out.String(), "\n"), 22)
	require.Equal(t, 3, strings.Count(out.String(), "has: apples=3 figs=1 plums=8 (5 writes)\n"), "a write is missing, or was applied twice")
	repeated := regexp.MustCompile(`set figs 1, request (\S+): entry (\d+)`).FindAllStringSubmatch(out.String(), -1)
	require.Len(t, repeated, 2)
	require.Equal(t, repeated[0], repeated[1])
	require.Len(t, regexp.MustCompile(`[abc] leads the harvest, token \d+`).FindAllString(out.String(), -1), 3)
}

func TestOnePeer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr, dir := l.Addr().String(), inMemory(t)
	require.NoError(t, l.Close())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var out strings.Builder
	lines := "set a 1 2\nset b 3\nget a\nget c\ndelete a\nlist\nwhat\n"
	require.NoError(t, runPeer(ctx, "x", "x@"+addr, dir, "0123456789abcdef", strings.NewReader(lines), &out))
	require.Equal(t, []string{"1 2", `error: there is no "c"`}, strings.Split(out.String(), "\n")[2:4])
	require.Contains(t, out.String(), "\nb=3 (3 writes)\nerror: \"what\" is none of")
	out.Reset()
	require.NoError(t, runPeer(ctx, "x", "x@"+addr, dir, "0123456789abcdef", strings.NewReader("list"), &out))
	require.Equal(t, "b=3 (3 writes)\n", out.String())
	require.ErrorContains(t, runPeer(ctx, "y", "x@"+addr, dir, "", strings.NewReader(""), io.Discard), "--peers")
}

func TestStoreGoesRound(t *testing.T) {
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
	require.Equal(t, "a=1 (1 writes)", restored.String(), "as it was when the snapshot was taken")
	require.Equal(t, " (2 writes)", s.String())
}
