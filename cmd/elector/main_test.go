//go:build unix

package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
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

	"github.com/go-leaderelection/leaderelection/cmd/internal/child"
	"github.com/go-leaderelection/leaderelection/internal/testenv/dbserver"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// built is what the end-to-end tests run.
var built string

// redisServer is for the tests of the backend changefeed.
var redisServer = dbserver.Shared{Start: func() (*dbserver.Server, error) { return dbserver.Redis() }}

func TestMain(m *testing.M) {
	child.RunWatchdog()
	flag.Parse()
	// Parallel tests spend most of their time waiting for other processes.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "elector")
	if err == nil {
		built = filepath.Join(dir, "elector")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", built, ".").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(redisServer.Tests(m), goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

const (
	patience = time.Minute
	// session is the session timeout of the electors. A leader's lease, which is half of it,
	// must outlast a machine that stalls for a second.
	session = 4 * time.Second
)

// electors is a server, and the processes that take part in an election on it.
type electors struct {
	*testing.T
	srv  *zktest.Server
	addr string
	file string // to which everybody's programs append what they do
}

func newElectors(t *testing.T, opts ...zktest.Option) *electors {
	srv := zktest.Start(t, opts...)
	return &electors{T: t, srv: srv, addr: srv.Addr(), file: filepath.Join(t.TempDir(), "deeds")}
}

// process is an elector, or another command of its binary.
type process struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, log *lines
}

// start starts the binary with environment variables and arguments.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return startWith(t, nil, env, args...)
}

// startWith is start with an input.
func startWith(t *testing.T, in *os.File, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(built, args...)}
	p.cmd.Env = append(os.Environ(), env...)
	if in != nil {
		p.cmd.Stdin = in
	}
	out, outW, err := os.Pipe()
	require.NoError(t, err)
	log, logW, err := os.Pipe()
	require.NoError(t, err)
	p.cmd.Stdout, p.cmd.Stderr = outW, logW
	require.NoError(t, p.cmd.Start())
	outW.Close()
	logW.Close()
	p.out, p.log = newLines(out), newLines(log)
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		_ = p.cmd.Process.Kill() // it has usually ended
		_ = p.cmd.Wait()
		// Whatever is left holds the pipes open.
		p.out.end(t)
		p.log.end(t)
		if t.Failed() {
			t.Logf("%s\n%s\n%s", strings.Join(args, " "), p.out.text(), p.log.text())
		}
	})
	return p
}

// run starts an elector of a name that runs script as its program, "" for none.
func (e *electors) run(name, script string, args ...string) *process {
	e.Helper()
	args = append([]string{
		"run", "--backend", "zookeeper", "--zookeeper-servers", e.addr, "--election", "/jobs/one",
		"--instance-id", name, "--session-timeout", session.String(),
	}, args...)
	if script != "" {
		args = append(args, "--", "/bin/sh", "-c", script)
	}
	return start(e.T, []string{"NAME=" + name, "FILE=" + e.file}, args...)
}

// exit waits for the end of the process, and returns its exit code.
func (p *process) exit() int {
	p.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.cmd.Wait()
	}()
	select {
	case <-done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-done
		require.Fail(p.t, "the process does not end", "%s", p.log.text())
		return -1
	}
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(sig))
}

// says waits for a line of output that begins with prefix, and returns it.
func (p *process) says(prefix string) string {
	p.t.Helper()
	return p.out.wait(p.t, func(line string) bool { return strings.HasPrefix(line, prefix) }, prefix)
}

// logs waits for a line of the log that contains text.
func (p *process) logs(text string) string {
	p.t.Helper()
	return p.log.wait(p.t, func(line string) bool { return strings.Contains(line, text) }, text)
}

// lines is what a process has written, which is read line by line.
type lines struct {
	r     io.Closer
	fresh chan string
	ended chan struct{}
	mu    sync.Mutex
	all   []string
}

func newLines(r io.ReadCloser) *lines {
	l := &lines{r: r, fresh: make(chan string, 100000), ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		for s := bufio.NewScanner(r); s.Scan(); {
			l.mu.Lock()
			l.all = append(l.all, s.Text())
			l.mu.Unlock()
			l.fresh <- s.Text()
		}
	}()
	return l
}

func (l *lines) wait(t *testing.T, match func(string) bool, what string) string {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case line := <-l.fresh:
			if match(line) {
				return line
			}
		case <-limit:
			require.Fail(t, "never said: "+what, "%s", l.text())
		}
	}
}

// end waits for the end of all who can write.
func (l *lines) end(t *testing.T) {
	select {
	case <-l.ended:
	case <-time.After(patience):
		t.Error("something that was run is left")
	}
	l.r.Close()
	<-l.ended
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all[max(0, len(l.all)-40):], "\n")
}

// deeds is what programs have appended to the file.
func (e *electors) deeds() []string {
	e.Helper()
	text, err := os.ReadFile(e.file)
	require.NoError(e, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

func touch(name string) error { return os.WriteFile(name, nil, 0o600) }
