//go:build unix

package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const (
	// patience is the time limit for events that usually occur much sooner, even on a busy machine.
	patience = time.Minute
	// sessionTimeout is the session timeout of the electors on ZooKeeper. The lease of a leader, which is half
	// of it, must be longer than a stall of a busy machine.
	sessionTimeout = 4 * time.Second
)

// The programs that electors of the tests run with /bin/sh. For each of their actions they append a line to FILE.
const (
	// stubborn is a program that ignores TERM.
	stubborn = `trap : TERM; echo "$NAME" >> "$FILE"; echo "started $ELECTOR_TOKEN"
		while :; do echo "$NAME" >> "$FILE"; echo works; sleep 0.01; done`
	// graceful is a program that exits after TERM.
	graceful = `trap 'echo "$NAME ends" >> "$FILE"; exit 0' TERM; echo "$NAME" >> "$FILE"; echo started; while :; do echo "$NAME" >> "$FILE"; sleep 0.01; done`
)

// harness runs electors and other commands of one election as processes.
type harness struct {
	*testing.T
	flags    []string                   // the flags of all commands: the backend and the election
	runFlags func(name string) []string // returns additional flags of run; may be nil
	dir      string                     // the directory for the files of the test
	file     string                     // the file in dir to which the programs append their actions

	srv   *zktest.Server // the server of the backend zookeeper; otherwise nil
	addr  string         // the address of srv
	peers string         // the value of --peers of the backend raftlog; otherwise empty
}

// newHarness returns a harness for a backend.
func newHarness(t *testing.T, flags []string) *harness { return newHarnessIn(t, t.TempDir(), flags) }

func newHarnessIn(t *testing.T, dir string, flags []string) *harness {
	return &harness{T: t, flags: flags, dir: dir, file: filepath.Join(dir, "actions")}
}

// newZooKeeperHarness starts a server, and returns a harness for the backend zookeeper.
func newZooKeeperHarness(t *testing.T, options ...zktest.Option) *harness {
	srv := zktest.Start(t, options...)
	h := newHarness(t, []string{
		"--backend", "zookeeper", "--zookeeper-servers", srv.Addr(), "--election", "/jobs/one", "--session-timeout", sessionTimeout.String(),
	})
	h.srv, h.addr = srv, srv.Addr()
	return h
}

// run starts an elector whose program is a script. If the script is empty, there is no program.
func (h *harness) run(name, script string, args ...string) *process {
	h.Helper()
	return startCommand(h.T, h.runCommand(name, script, args...))
}

// lead starts an elector like run, and waits until its program, which is stubborn or graceful, has started.
func (h *harness) lead(name, script string, args ...string) *process {
	h.Helper()
	p := h.run(name, script, args...)
	p.waitForOutput("started")
	return p
}

// follow starts an elector like run, and waits until it is a follower.
func (h *harness) follow(name, script string, args ...string) *process {
	h.Helper()
	p := h.run(name, script, args...)
	p.waitForLog("follower")
	return p
}

// runCommand returns the command that harness.run starts.
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

// command starts a command other than run, with the flags of the harness.
func (h *harness) command(name string, args ...string) *process {
	h.Helper()
	return start(h.T, slices.Concat([]string{name}, h.flags, args)...)
}

// readActions returns the lines that the programs have appended to the file of the harness.
func (h *harness) readActions() []string {
	h.Helper()
	text, err := os.ReadFile(h.file)
	require.NoError(h, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// requireOrder requires that the programs with these names have acted one after another, in this order.
func (h *harness) requireOrder(names ...string) {
	h.Helper()
	require.Equal(h, names, slices.Compact(h.readActions()))
}

// requireSuccession runs the electors a, b and c and the command watch, kills a, terminates b, and ends the election.
// Then it runs d, and deletes the election. It requires that each program works after the previous one, that watch
// reports these leaders, that c and watch exit when the election is ended, and that d exits when the election is
// deleted. It calls inspect while b leads and c waits.
func (h *harness) requireSuccession(inspect func()) {
	h.Helper()
	a := h.lead("a", stubborn)
	watch := h.command("watch")
	watch.waitForOutput("") // wait until a leads
	b := h.follow("b", stubborn)
	a.signal(syscall.SIGKILL)
	a.requireExit(-1)
	b.waitForOutput("works")
	c := h.follow("c", stubborn)
	inspect()
	b.terminate()
	c.waitForOutput("works")
	h.requireOrder("a", "b", "c")
	for _, name := range []string{"b", "c"} {
		watch.output.WaitForLine(h.T, patience, name, func(line string) bool { return strings.Contains(line, name+" leads") })
	}
	h.command("end").requireExit(cmdline.OK)
	c.requireExit(cmdline.Permanent)
	watch.requireExit(cmdline.Permanent)
	d := h.lead("d", stubborn) // d is the first candidate of another election
	h.requireOrder("a", "b", "c", "d")
	h.command("delete").requireExit(cmdline.OK)
	d.requireExit(cmdline.Permanent)
}

// process is a command that a test has started.
type process struct {
	t           *testing.T
	cmd         *exec.Cmd
	output, log *testenv.Output // standard output and standard error
}

// start starts the binary of elector with arguments.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startWithInput(t, nil, args...)
}

// startWithInput starts the binary of elector like start, with the standard input in, which may be nil.
func startWithInput(t *testing.T, in io.Reader, args ...string) *process {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Stdin = in
	return startCommand(t, cmd)
}

// startCommand starts a command. If the caller has set its standard error, the log of the process is empty.
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
	p.output, p.log = testenv.NewOutput(output), testenv.NewOutput(log)
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		_ = p.cmd.Process.Kill() // ignore the error, because the process has usually exited
		_ = p.cmd.Wait()
		// Wait until both pipes are closed: they remain open if a process that should have been stopped still uses
		// them.
		p.output.WaitForEnd(t, patience)
		p.log.WaitForEnd(t, patience)
		if t.Failed() {
			t.Logf("%s\n%s\n%s", strings.Join(cmd.Args, " "), p.output.Tail(), p.log.Tail())
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
		require.Fail(p.t, "the process does not exit", "%s", p.log.Tail())
		return -1
	}
}

// requireExit waits until the process has exited. It requires this exit code, and lines of the log that contain these
// texts, in this order.
func (p *process) requireExit(code int, logged ...string) {
	p.t.Helper()
	require.Equal(p.t, code, p.exitCode(), p.log.Tail())
	for _, text := range logged {
		p.waitForLog(text)
	}
}

// terminate sends TERM, and requires that the process exits without an error.
func (p *process) terminate() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	p.requireExit(cmdline.OK)
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(sig))
}

// waitForOutput waits for a line of the output that begins with prefix, and returns it.
func (p *process) waitForOutput(prefix string) string {
	p.t.Helper()
	return p.output.WaitForLine(p.t, patience, prefix, func(line string) bool { return strings.HasPrefix(line, prefix) })
}

// waitForLog waits for a line of the log that contains text, and returns it.
func (p *process) waitForLog(text string) string {
	p.t.Helper()
	return p.log.WaitForLine(p.t, patience, text, func(line string) bool { return strings.Contains(line, text) })
}

// executeLine executes a command line in this process, and returns its output.
func executeLine(args ...string) (string, error) {
	root, out := newRoot(), &bytes.Buffer{}
	root.SetOut(out)
	root.SetArgs(args)
	err := root.Execute()
	return out.String(), err
}

// createFile creates an empty file. A script of the test waits until the file exists.
func createFile(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, os.WriteFile(name, nil, 0o600))
}
