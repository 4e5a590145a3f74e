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
)

// peer is a program with another library. Commands are lines on its standard input, a
// number, a word and arguments, of which the first says over which of its two
// sessions. It obeys each on a thread of its own and answers on its standard output
// with the number, and ok or error.
type peer struct {
	name  string
	needs []string
	args  []string // the program and its arguments, before the two addresses

	cmd     *exec.Cmd
	in      io.WriteCloser
	errors  *tail
	reader  sync.WaitGroup
	ready   chan struct{} // closed when it can be told things, or never will
	version string        // what it says of itself

	mu      sync.Mutex
	last    int
	pending map[string]chan string // by number, and by the handle of what is watched
	err     error                  // why it cannot be used, or any more
}

const java = "/usr/share/java/"

func jars(names ...string) (all []string) {
	for _, n := range names {
		all = append(all, java+n+".jar")
	}
	return all
}

// The jars name what they need besides. All jars of the folder would clash.
var curatorJars = jars("curator-recipes", "curator-framework", "curator-client", "curator-x-discovery", "zookeeper", "guava")

var (
	curator = &peer{
		name: "curator", needs: curatorJars,
		args: []string{
			"java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
			"-cp", "/etc/zookeeper/conf:" + strings.Join(curatorJars, ":"), "testdata/CuratorPeer.java",
		},
	}
	kazoo = &peer{
		name: "kazoo", needs: []string{"/usr/lib/python3/dist-packages/kazoo"},
		args: []string{"/usr/bin/python3", "testdata/kazoo_peer.py"},
	}
)

func (p *peer) start(zookeeper, oracle string) {
	p.ready, p.pending, p.errors = make(chan struct{}), map[string]chan string{}, new(tail)
	_, p.err = exec.LookPath(p.args[0])
	for _, f := range p.needs {
		if _, err := os.Stat(f); p.err == nil {
			p.err = err
		}
	}
	if p.err == nil {
		p.err = p.run(zookeeper, oracle)
	}
	if p.err != nil {
		close(p.ready)
	}
}

func (p *peer) run(zookeeper, oracle string) error {
	p.cmd = exec.Command(p.args[0], append(p.args[1:], zookeeper, oracle)...)
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
	p.reader.Go(func() { p.read(bufio.NewScanner(out)) })
	return nil
}

// read hands answers to those who wait for them, until the program ends.
func (p *peer) read(lines *bufio.Scanner) {
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
			default: // nobody reads so many
			}
		}
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = errors.New("it has ended")
	for _, c := range p.pending {
		close(c)
	}
	p.pending = nil
	if !ready {
		close(p.ready)
	}
}

// stop ends the program, also one that hangs.
func (p *peer) stop() error {
	if p.cmd == nil || p.cmd.Process == nil {
		return nil
	}
	p.in.Close()
	late := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	p.reader.Wait()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w\n%s", p.name, err, p.errors)
	}
	return nil
}

// use waits until the program can be told things. What it needs must be there if
// ZKTEST_REAL=required; otherwise the test is skipped if something is missing.
func (p *peer) use(t *testing.T) {
	t.Helper()
	select {
	case <-p.ready:
	case <-time.After(2 * patience):
		require.FailNow(t, p.name+" does not start", p.errors.String())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if errors.Is(p.err, os.ErrNotExist) || errors.Is(p.err, exec.ErrNotFound) {
		if os.Getenv("ZKTEST_REAL") != "required" {
			t.Skipf("NOT TRIED with %s: %v", p.name, p.err)
		}
	}
	require.NoError(t, p.err, p.errors.String())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s says:\n%s", p.name, p.errors)
		}
	})
}

// call is a command that was given.
type call struct {
	p      *peer
	words  string
	answer chan string
}

// tell gives a command, over one of the two sessions.
func (p *peer) tell(t *testing.T, word string, session int, args ...any) *call {
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

// ok waits until the command was carried out, and returns the answer.
func (c *call) ok(t *testing.T) string {
	t.Helper()
	select {
	case a := <-c.answer:
		verdict, rest, _ := strings.Cut(a, " ")
		require.Equal(t, "ok", verdict, "%s, told %q, says %q\n%s", c.p.name, c.words, a, c.p.errors)
		return rest
	case <-time.After(patience):
		require.FailNow(t, "no answer", "%s, told %q\n%s", c.p.name, c.words, c.p.errors)
		return ""
	}
}

// ask is tell and ok.
func (p *peer) ask(t *testing.T, word string, args ...any) string {
	t.Helper()
	return p.tell(t, word, 0, args...).ok(t)
}

// watch returns what the program says of something that it keeps under a handle.
func (p *peer) watch(handle string) <-chan string {
	said := make(chan string, 100)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending[handle] = said
	return said
}

// tail is the last of what was written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (b *tail) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	b.text = b.text[max(0, len(b.text)-20000):]
	return len(p), nil
}

func (b *tail) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text)
}
