package interop

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/recipes/queue"
	"github.com/go-leaderelection/leaderelection/recipes/shard"
)

// program is a program in Go. docs/recipes/peers.md compares it with the programs in testdata/programs, which use
// Curator and kazoo. It calls the function work when it would do its work.
type program func(ctx context.Context, conn *zk.Conn, path string, work func(what string)) error

func lockProgram(ctx context.Context, conn *zk.Conn, path string, work func(string)) error {
	backup := func(context.Context, int64) error { work(""); return nil }
	// begin lock
	mutex, err := lock.NewMutex(conn, path)
	if err != nil {
		return err
	}
	return mutex.Do(ctx, func(ctx context.Context, hold *lock.Hold) error {
		return backup(ctx, hold.Token())
	})
	// end
}

func queueProgram(ctx context.Context, conn *zk.Conn, path string, work func(string)) error {
	do := func(_ context.Context, job []byte) error { work(string(job)); return nil }
	// begin queue
	jobs, err := queue.New(conn, path)
	if err != nil {
		return err
	}
	defer jobs.Close()
	return jobs.Handle(ctx, func(ctx context.Context, item *queue.Item) error {
		return do(ctx, item.Data())
	})
	// end
}

func shardsProgram(ctx context.Context, conn *zk.Conn, path string, work func(string)) error {
	id, all := "worker-1", tenantNames()
	workFor := func(ctx context.Context, tenant string, _ int64) error { work(tenant); <-ctx.Done(); return nil }
	// begin shards
	group, err := shard.NewGroup(conn, path)
	if err != nil {
		return err
	}
	_, err = group.Update(ctx, func(s *shard.Spec) error { s.Shards = all; return nil })
	if err != nil {
		return err
	}
	return group.Run(ctx, id, func(ctx context.Context, s *shard.Shard) error {
		return workFor(ctx, s.Name(), s.Token())
	})
	// end
}

func tenantNames() (all []string) {
	for i := range 64 {
		all = append(all, fmt.Sprintf("tenant-%02d", i))
	}
	return all
}

// programs contains the files of the programs in other languages, by purpose and library. This file contains the
// programs in Go.
var programs = map[string]map[string]string{
	"lock":   {"kazoo": "lock.py", "curator": "Lock.java"},
	"queue":  {"kazoo": "workqueue.py", "curator": "Queue.java"},
	"shards": {"kazoo": "shards.py"},
}

// TestPrograms_DoWorkThatPageDescribes checks that each program whose lines docs/recipes/peers.md counts does the
// work that the page describes.
func TestPrograms_DoWorkThatPageDescribes(t *testing.T) {
	ours := map[string]program{"lock": lockProgram, "queue": queueProgram, "shards": shardsProgram}
	for purpose, theirs := range programs {
		want := map[string][]string{"lock": {"working"}, "queue": {"working on a", "working on b"}}[purpose]
		for _, tenant := range tenantNames() {
			if purpose == "shards" {
				want = append(want, "working on "+tenant)
			}
		}
		prepare := func(t *testing.T, p *peer) (path string) {
			if path = testenv.NewPath(t); purpose == "queue" {
				putJobs(t, path, p)
			}
			return path
		}
		t.Run(purpose+"/go", func(t *testing.T) {
			ctx, stop := context.WithCancel(testenv.ContextOf(t))
			defer stop()
			var found atomic.Int64
			require.NoError(t, ours[purpose](ctx, connect(t), prepare(t, curator), func(string) {
				if found.Add(1) == int64(len(want)) && purpose != "lock" {
					stop()
				}
			}))
			require.EqualValues(t, len(want), found.Load())
		})
		for library, file := range theirs {
			t.Run(purpose+"/"+library, func(t *testing.T) {
				p := map[string]*peer{"kazoo": kazoo, "curator": curator}[library]
				p.requirePeer(t)
				require.ElementsMatch(t, want, runProgram(t, p, file, prepare(t, p), len(want)))
			})
		}
	}
}

// putJobs puts the jobs a and b into a queue, with the layout of znodes that a peer uses.
func putJobs(t *testing.T, path string, p *peer) {
	q, err := queue.New(connect(t), path, p.layout())
	require.NoError(t, err)
	for _, job := range []string{"a", "b"} {
		_, err := q.Put(testenv.ContextOf(t), []byte(job))
		require.NoError(t, err)
	}
	require.NoError(t, q.Close())
}

// runProgram runs the program of a peer until it has printed n lines, and returns them.
func runProgram(t *testing.T, p *peer, file, path string, n int) (lines []string) {
	args := append([]string(nil), p.args...)
	args[len(args)-1] = "testdata/programs/" + file
	cmd := exec.CommandContext(testenv.ContextOf(t), args[0], append(args[1:], server.Addr(0), path)...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1") // Python must not write its cache into testdata
	var failure bytes.Buffer
	cmd.Stderr = &failure
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	output := bufio.NewScanner(out)
	for len(lines) < n && output.Scan() {
		lines = append(lines, output.Text())
	}
	require.NoError(t, in.Close())
	_, err = io.Copy(io.Discard, out)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait(), failure.String())
	return lines
}

// TestPrograms_HaveDocumentedNumbersOfLines checks that docs/recipes/peers.md states the numbers of lines of the
// programs.
func TestPrograms_HaveDocumentedNumbersOfLines(t *testing.T) {
	document, err := os.ReadFile("../../docs/recipes/peers.md")
	require.NoError(t, err)
	for purpose, title := range map[string]string{"lock": "a lock around a job", "queue": "a work queue", "shards": "64 tenants on 5 workers"} {
		row := fmt.Sprintf("| %s | %d |", title, countLines(t, "programs_test.go", "begin "+purpose))
		for _, library := range []string{"curator", "kazoo"} {
			cell := " –"
			if file, exists := programs[purpose][library]; exists {
				cell = fmt.Sprintf(" %d", countLines(t, "testdata/programs/"+file, "begin"))
			}
			row += cell + " |"
		}
		require.Contains(t, string(document), row)
	}
}

// countLines returns the number of lines between the comment begin and the comment end in a file, without empty
// lines.
func countLines(t *testing.T, file, begin string) (n int) {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	counting := false
	for line := range strings.Lines(string(text)) {
		switch line := strings.Trim(line, "/# \t\n"); {
		case line == begin:
			counting = true
		case line == "end" && counting:
			return n
		case counting && line != "":
			n++
		}
	}
	require.Fail(t, "the file has no comment end", file)
	return 0
}
