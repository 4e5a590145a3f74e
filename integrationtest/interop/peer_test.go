package interop

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// peer is a program that uses another library. It reads commands from its standard input, one per line: a number, a
// word, the number of one of its two sessions, and other arguments. It executes each command in a separate thread,
// and prints the number of the command with "ok" or "error" on its standard output.
type peer struct {
	name  string
	files []string // the files that must be installed for the program
	args  []string // the program and its arguments, before the addresses of the server and of the monitor

	cmd     *exec.Cmd
	in      io.WriteCloser
	errors  *logTail
	reader  sync.WaitGroup
	ready   chan struct{} // closed when the program accepts commands, or has failed
	version string        // the version of the library; empty if the program does not report it

	mu      sync.Mutex
	last    int
	pending map[string]chan string // the channels that receive lines, by the number of a command or the handle of an object
	err     error                  // the reason why the program cannot be used, or nil
}

const java = "/usr/share/java/"

func jarPaths(names ...string) (all []string) {
	for _, n := range names {
		all = append(all, java+n+".jar")
	}
	return all
}

// The manifests of these jars name the other jars that they need. A class path with all jars of the directory would
// contain conflicting versions.
var curatorJars = jarPaths("curator-recipes", "curator-framework", "curator-client", "curator-x-discovery", "zookeeper", "guava")

var (
	curator = &peer{
		name: "curator", files: curatorJars,
		args: []string{
			"java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
			"-cp", "/etc/zookeeper/conf:" + strings.Join(curatorJars, ":"), "testdata/CuratorPeer.java",
		},
	}
	kazoo = &peer{
		name: "kazoo", files: []string{"/usr/lib/python3/dist-packages/kazoo"},
		args: []string{"/usr/bin/python3", "testdata/kazoo_peer.py"},
	}
)

func (p *peer) start(zookeeper, monitor string) {
	p.ready, p.pending, p.errors = make(chan struct{}), map[string]chan string{}, new(logTail)
	_, p.err = exec.LookPath(p.args[0])
	for _, f := range p.files {
		if _, err := os.Stat(f); p.err == nil {
			p.err = err
		}
	}
	if p.err == nil {
		p.err = p.startProcess(zookeeper, monitor)
	}
	if p.err != nil {
		close(p.ready)
	}
}

func (p *peer) startProcess(zookeeper, monitor string) error {
	p.cmd = exec.Command(p.args[0], append(p.args[1:], zookeeper, monitor)...)
	p.cmd.Stderr = p.errors
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	p.in = in
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.reader.Go(func() { p.readAnswers(bufio.NewScanner(out)) })
	return nil
}

// readAnswers sends each line of the program to the channel in pending that waits for it, until the program ends.
func (p *peer) readAnswers(lines *bufio.Scanner) {
	ready := false
	for lines.Scan() {
		number, answer, _ := strings.Cut(lines.Text(), " ")
		p.mu.Lock()
		switch {
		case number == "ready" && !ready:
			ready, p.version = true, answer
			close(p.ready)
		case p.pending[number] != nil:
			select {
			case p.pending[number] <- answer:
			default: // drop the line: no test reads so many
			}
		}
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = errors.New("the program of the peer has ended")
	for _, c := range p.pending {
		close(c)
	}
	p.pending = nil
	if !ready {
		close(p.ready)
	}
}

// stop makes the program end by closing its standard input. If the program does not end in time, stop kills it.
func (p *peer) stop() error {
	if p.cmd == nil || p.cmd.Process == nil {
		return nil
	}
	p.in.Close()
	killer := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer killer.Stop()
	p.reader.Wait()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w\n%s", p.name, err, p.errors)
	}
	return nil
}

// requirePeer waits until the program accepts commands. If the program is not installed, requirePeer skips the test,
// or fails, as testenv.SkipMissing does.
func (p *peer) requirePeer(t *testing.T) {
	t.Helper()
	select {
	case <-p.ready:
	case <-time.After(2 * testenv.WaitLimit):
		require.FailNow(t, p.name+" does not start", p.errors.String())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if errors.Is(p.err, os.ErrNotExist) || errors.Is(p.err, exec.ErrNotFound) {
		testenv.SkipMissing(t, p.name, p.err)
	}
	require.NoError(t, p.err, p.errors.String())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("errors of %s:\n%s", p.name, p.errors)
		}
	})
}

// call is a command that this process has sent to a peer. The channel answer receives the peer's answer.
type call struct {
	p      *peer
	words  string
	answer chan string
}

// sendCommand sends a command for one of the two sessions of the program, without waiting for the answer.
func (p *peer) sendCommand(t *testing.T, word string, session int, args ...any) *call {
	t.Helper()
	c := &call{p: p, words: word, answer: make(chan string, 1)}
	for _, a := range append([]any{session}, args...) {
		c.words += " " + fmt.Sprint(a)
	}
	p.mu.Lock()
	require.NoError(t, p.err)
	p.last++
	number := fmt.Sprint(p.last)
	p.pending[number] = c.answer
	_, err := io.WriteString(p.in, number+" "+c.words+"\n")
	p.mu.Unlock()
	require.NoError(t, err)
	return c
}

// wait waits until the program has executed the command, and returns the answer.
func (c *call) wait(t *testing.T) string {
	t.Helper()
	select {
	case a := <-c.answer:
		verdict, rest, _ := strings.Cut(a, " ")
		require.Equal(t, "ok", verdict, "%s answers %q to %q\n%s", c.p.name, a, c.words, c.p.errors)
		return rest
	case <-time.After(testenv.WaitLimit):
		require.FailNow(t, "no answer", "of %s to %q\n%s", c.p.name, c.words, c.p.errors)
		return ""
	}
}

// runCommand sends a command for session 0, waits, and returns the answer.
func (p *peer) runCommand(t *testing.T, word string, args ...any) string {
	t.Helper()
	return p.sendCommand(t, word, 0, args...).wait(t)
}

// subscribe returns a channel that receives the messages of an object that the program has created
// with the given handle.
func (p *peer) subscribe(handle string) <-chan string {
	messages := make(chan string, 100)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending[handle] = messages
	return messages
}

// logTail is a writer that keeps the last 20,000 bytes that were written to it.
type logTail struct {
	mu   sync.Mutex
	text []byte
}

func (b *logTail) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	b.text = b.text[max(0, len(b.text)-20000):]
	return len(p), nil
}

func (b *logTail) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text)
}
