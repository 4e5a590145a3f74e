//go:build unix

package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// built is what the end-to-end tests run.
var built string

func TestMain(m *testing.M) {
	flag.Parse()
	// Parallel tests spend most of their time waiting for other processes.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "raftlog")
	if err == nil {
		built = filepath.Join(dir, "raftlog")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", built, ".").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

const (
	patience = 20 * time.Second
	// secret must never be printed.
	secret = "not-to-be-shown-0123456789"
)

// cluster is a configuration file that all peers share, and their processes.
type cluster struct {
	*testing.T
	dir, file string
	addrs     map[string]string
	peers     map[string]*peer
}

// newCluster has its files in memory, if this machine has such: a disk may take longer for one
// sync than an election timeout. Processes that are killed lose nothing by it.
func newCluster(t *testing.T, founders ...string) *cluster {
	dir, err := testenv.MakeDir("raftlog")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	c := &cluster{T: t, dir: dir, addrs: map[string]string{}, peers: map[string]*peer{}}
	c.file = filepath.Join(c.dir, "raftlog.yaml")
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, "secret"), []byte(secret+"\n"), 0o600))
	var b strings.Builder
	fmt.Fprintf(&b, "cluster: test\ndir: %s/{id}\ncompact-file: %s/{id}/compact/snap.new\nsecret-file: %s/secret\nelection-timeout: 1s\npeers:\n",
		c.dir, c.dir, c.dir)
	for i, id := range founders {
		if i%2 == 0 {
			fmt.Fprintf(&b, "  - tcp://%s/%s\n", c.addr(id), id)
		} else {
			fmt.Fprintf(&b, "  - {id: %s, addr: %q}\n", id, c.addr(id))
		}
	}
	require.NoError(t, os.WriteFile(c.file, []byte(b.String()), 0o600))
	return c
}

// addr is where a peer listens, always the same.
func (c *cluster) addr(id string) string {
	c.Helper()
	if c.addrs[id] == "" {
		port, err := testenv.ReservePort()
		require.NoError(c, err)
		c.Cleanup(port.Release)
		c.addrs[id] = fmt.Sprintf("127.0.0.1:%d", port.Number)
	}
	return c.addrs[id]
}

// peer is a raftlog serve.
type peer struct {
	cmd   *exec.Cmd
	log   *lines
	ended bool
}

// start runs a peer until it listens.
func (c *cluster) start(id string, args ...string) *peer {
	c.Helper()
	p := &peer{cmd: exec.Command(built, append([]string{"serve", "-c", c.file, "--peer-id", id}, args...)...)}
	c.peers[id] = p
	r, w, err := os.Pipe()
	require.NoError(c, err)
	p.cmd.Stderr = w
	require.NoError(c, p.cmd.Start())
	w.Close()
	p.log = newLines(r)
	c.Cleanup(func() {
		if !p.ended {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
		p.log.end()
		text := p.log.text()
		if c.Failed() {
			c.Logf("peer %s\n%s", id, text)
		}
		require.NotContains(c, text, secret)
	})
	p.logs(c.T, "msg=listening")
	return p
}

func (p *peer) logs(t *testing.T, text string) {
	t.Helper()
	p.log.wait(t, text)
}

// wait waits for a line that contains text.
func (l *lines) wait(t *testing.T, text string) string {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case line, ok := <-l.fresh:
			if !ok {
				require.Fail(t, "ended, and never said: "+text)
			}
			if strings.Contains(line, text) {
				return line
			}
		case <-limit:
			require.Fail(t, "never said: "+text)
		}
	}
}

// end sends a signal, waits for the end, and returns the exit code.
func (p *peer) end(t *testing.T, sig syscall.Signal) int {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(sig))
	limit := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer limit.Stop()
	_ = p.cmd.Wait()
	p.ended = true
	return p.cmd.ProcessState.ExitCode()
}

// run runs a command with the cluster's file.
func (c *cluster) run(args ...string) result {
	c.Helper()
	return command(c.T, nil, append([]string{args[0], "-c", c.file}, args[1:]...)...)
}

// ok is run of what has to succeed, and returns its output.
func (c *cluster) ok(args ...string) string {
	c.Helper()
	r := c.run(args...)
	require.Zero(c, r.code, "%s: %s", strings.Join(args, " "), r.log)
	return r.out
}

// result is what a command has done.
type result struct {
	code     int
	out, log string
	took     time.Duration
}

func command(t *testing.T, env []string, args ...string) result {
	t.Helper()
	cmd := exec.Command(built, args...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	cmd.Env = append(os.Environ(), env...)
	began := time.Now()
	require.NoError(t, cmd.Start())
	limit := time.AfterFunc(2*patience, func() { _ = cmd.Process.Kill() })
	defer limit.Stop()
	_ = cmd.Wait()
	r := result{cmd.ProcessState.ExitCode(), out.String(), log.String(), time.Since(began)}
	require.NotContains(t, r.out+r.log, secret)
	return r
}

// lines is what a process has written, which is read line by line.
type lines struct {
	r     *os.File
	fresh chan string
	mu    sync.Mutex
	all   []string
}

func newLines(r *os.File) *lines {
	l := &lines{r: r, fresh: make(chan string, 100000)}
	go func() {
		defer close(l.fresh)
		for s := bufio.NewScanner(r); s.Scan(); {
			l.mu.Lock()
			l.all = append(l.all, s.Text())
			l.mu.Unlock()
			l.fresh <- s.Text()
		}
	}()
	return l
}

// end waits until the process, which has ended, has been read.
func (l *lines) end() {
	for range l.fresh {
	}
	l.r.Close()
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}
