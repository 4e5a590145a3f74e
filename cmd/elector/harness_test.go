//go:build unix

package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const (
	// patience is the time limit for events that occur sooner even on a busy machine.
	patience = time.Minute
	// session is the session timeout of the electors on ZooKeeper. The lease of a leader, which is half
	// of it, must be longer than a stall of a busy machine.
	session = 4 * time.Second
)

// Programs for /bin/sh. They append a line to FILE for each of their actions.
const (
	// stubborn ignores TERM.
	stubborn = `trap : TERM; echo "started $ELECTOR_TOKEN"; while :; do echo "$NAME" >> "$FILE"; echo works; sleep 0.01; done`
	// graceful exits after TERM.
	graceful = `trap 'echo "$NAME ends" >> "$FILE"; exit 0' TERM; echo "$NAME" >> "$FILE"; echo started; while :; do echo "$NAME" >> "$FILE"; sleep 0.01; done`
)

// harness runs electors and other commands of one election as processes.
type harness struct {
	*testing.T
	flags    []string                   // of all commands: the backend and the election
	runFlags func(name string) []string // of run, in addition; it may be nil
	file     string                     // to which the programs append their actions

	srv  *zktest.Server // the server of the backend zookeeper; otherwise nil
	addr string         // of srv
}

// newHarness returns a harness for a backend.
func newHarness(t *testing.T, flags []string) *harness {
	return &harness{T: t, flags: flags, file: filepath.Join(t.TempDir(), "actions")}
}

// newZooKeeperHarness starts a server, and returns a harness for the backend zookeeper.
func newZooKeeperHarness(t *testing.T, options ...zktest.Option) *harness {
	srv := zktest.Start(t, options...)
	h := newHarness(t, []string{
		"--backend", "zookeeper", "--zookeeper-servers", srv.Addr(), "--election", "/jobs/one", "--session-timeout", session.String(),
	})
	h.srv, h.addr = srv, srv.Addr()
	return h
}

// run starts an elector whose program is a script. If the script is empty, there is no program.
func (h *harness) run(name, script string, args ...string) *process {
	h.Helper()
	return startCommand(h.T, h.runCommand(name, script, args...))
}

// runCommand returns the command that run starts.
func (h *harness) runCommand(name, script string, args ...string) *exec.Cmd {
	all := slices.Concat([]string{"run", "--instance-id", name}, h.flags)
	if h.runFlags != nil {
		all = append(all, h.runFlags(name)...)
	}
	all = append(all, args...)
	if script != "" {
		all = append(all, "--", "/bin/sh", "-c", script)
	}
	cmd := exec.Command(binary, all...)
	cmd.Env = append(os.Environ(), "NAME="+name, "FILE="+h.file)
	return cmd
}

// command starts another command.
func (h *harness) command(name string, args ...string) *process {
	h.Helper()
	return start(h.T, nil, slices.Concat([]string{name}, h.flags, args)...)
}

// actions returns the lines that programs have appended to the file.
func (h *harness) actions() []string {
	h.Helper()
	text, err := os.ReadFile(h.file)
	require.NoError(h, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// requireOrder requires that the programs have acted one after another, in this order.
func (h *harness) requireOrder(names ...string) {
	h.Helper()
	require.Equal(h, names, slices.Compact(h.actions()))
}

// requireSuccession runs the electors a, b and c and the command watch, kills a, terminates b, and ends
// the election. Then it runs d, and deletes the election. It requires that each of them works after the
// previous one, that watch reports that, that c and watch exit at the end, and d at the deletion. It calls
// inspect while b leads and c waits.
func (h *harness) requireSuccession(inspect func()) {
	h.Helper()
	a := h.run("a", stubborn)
	a.waitForOutput("works")
	watch := h.command("watch")
	watch.waitForOutput("") // a leads
	b := h.run("b", stubborn)
	b.waitForLog("follower")
	a.signal(syscall.SIGKILL)
	require.Equal(h, -1, a.exitCode())
	b.waitForOutput("works")
	c := h.run("c", stubborn)
	c.waitForLog("follower")
	inspect()
	b.signal(syscall.SIGTERM)
	require.Equal(h, cmdline.OK, b.exitCode())
	c.waitForOutput("works")
	h.requireOrder("a", "b", "c")
	for _, name := range []string{"b", "c"} {
		watch.output.waitForLine(h.T, name, func(line string) bool { return strings.Contains(line, name+" leads") })
	}
	require.Equal(h, cmdline.OK, h.command("end").exitCode())
	require.Equal(h, cmdline.Permanent, c.exitCode())
	require.Equal(h, cmdline.Permanent, watch.exitCode())
	d := h.run("d", stubborn) // begins another election
	d.waitForOutput("works")
	h.requireOrder("a", "b", "c", "d")
	require.Equal(h, cmdline.OK, h.command("delete").exitCode())
	require.Equal(h, cmdline.Permanent, d.exitCode())
}

// process is a running command.
type process struct {
	t           *testing.T
	cmd         *exec.Cmd
	output, log *outputReader // standard output and standard error
}

// start starts the binary.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return startWithInput(t, nil, env, args...)
}

// startWithInput is like start. in, which may be nil, is the standard input.
func startWithInput(t *testing.T, in *os.File, env []string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), env...)
	if in != nil {
		cmd.Stdin = in
	}
	return startCommand(t, cmd)
}

// startCommand starts a command. If its standard error is set, the log of the process is empty.
func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd}
	output, outputWriter, err := os.Pipe()
	require.NoError(t, err)
	log, logWriter, err := os.Pipe()
	require.NoError(t, err)
	p.cmd.Stdout = outputWriter
	if p.cmd.Stderr == nil {
		p.cmd.Stderr = logWriter
	}
	require.NoError(t, p.cmd.Start())
	outputWriter.Close()
	logWriter.Close()
	p.output, p.log = newOutputReader(output), newOutputReader(log)
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		_ = p.cmd.Process.Kill() // it has usually exited
		_ = p.cmd.Wait()
		// Processes that were not stopped keep the pipes open.
		p.output.waitForEnd(t)
		p.log.waitForEnd(t)
		if t.Failed() {
			t.Logf("%s\n%s\n%s", strings.Join(cmd.Args, " "), p.output.text(), p.log.text())
		}
	})
	return p
}

// exitCode waits until the process has exited, and returns its exit code.
func (p *process) exitCode() int {
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
		require.Fail(p.t, "the process does not exit", "%s", p.log.text())
		return -1
	}
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(sig))
}

// waitForOutput waits for a line of the output that begins with prefix, and returns it.
func (p *process) waitForOutput(prefix string) string {
	p.t.Helper()
	return p.output.waitForLine(p.t, prefix, func(line string) bool { return strings.HasPrefix(line, prefix) })
}

// waitForLog waits for a line of the log that contains text, and returns it.
func (p *process) waitForLog(text string) string {
	p.t.Helper()
	return p.log.waitForLine(p.t, text, func(line string) bool { return strings.Contains(line, text) })
}

// outputReader reads the output of a process line by line.
type outputReader struct {
	r      io.Closer
	unread chan string   // lines that waitForLine has not read
	ended  chan struct{} // is closed when the output is closed
	mu     sync.Mutex
	lines  []string
}

func newOutputReader(r io.ReadCloser) *outputReader {
	o := &outputReader{r: r, unread: make(chan string, 100000), ended: make(chan struct{})}
	go func() {
		defer close(o.ended)
		for s := bufio.NewScanner(r); s.Scan(); {
			o.mu.Lock()
			o.lines = append(o.lines, s.Text())
			o.mu.Unlock()
			o.unread <- s.Text()
		}
	}()
	return o
}

// waitForLine reads lines until one matches, and returns it. description appears in the error.
func (o *outputReader) waitForLine(t *testing.T, description string, match func(string) bool) string {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case line := <-o.unread:
			if match(line) {
				return line
			}
		case <-limit:
			require.Fail(t, "no line of output: "+description, "%s", o.text())
		}
	}
}

// waitForEnd waits until all processes have closed the output.
func (o *outputReader) waitForEnd(t *testing.T) {
	select {
	case <-o.ended:
	case <-time.After(patience):
		t.Error("a process that elector has started is still running")
	}
	o.r.Close()
	<-o.ended
}

// text returns the last lines.
func (o *outputReader) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.lines[max(0, len(o.lines)-40):], "\n")
}

// createFile creates an empty file, for which a script waits.
func createFile(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, os.WriteFile(name, nil, 0o600))
}
