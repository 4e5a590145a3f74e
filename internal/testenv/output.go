package testenv

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
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BuildCommand builds the command in the working directory. It returns the path of the program, and a function that
// removes the program and exits with a code. BuildCommand also parses the flags of the tests, and lets four tests
// run in parallel, because the tests spend most of their time waiting for other processes.
func BuildCommand() (path string, exit func(code int)) {
	flag.Parse()
	err := flag.Set("test.parallel", "4")
	dir, mkdirErr := os.MkdirTemp("", "command")
	if err == nil {
		err = mkdirErr
	}
	exit = func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}
	path = filepath.Join(dir, "command")
	if err == nil {
		var out []byte
		if out, err = exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		exit(1)
	}
	return path, exit
}

// Output is the output of a process, line by line.
type Output struct {
	// Unread receives the lines that WaitForLine has not read. It is closed when all processes have closed
	// the output.
	Unread chan string

	r     io.Closer
	ended chan struct{} // closed at the same time as Unread
	mu    sync.Mutex
	lines []string
}

// NewOutput returns an Output that reads from r until EOF.
func NewOutput(r io.ReadCloser) *Output {
	o := &Output{r: r, Unread: make(chan string, 100000), ended: make(chan struct{})}
	go func() {
		defer close(o.ended)
		defer close(o.Unread)
		for s := bufio.NewScanner(r); s.Scan(); {
			o.mu.Lock()
			o.lines = append(o.lines, s.Text())
			o.mu.Unlock()
			o.Unread <- s.Text()
		}
	}()
	return o
}

// WaitForLine reads lines until match returns true for a line, and returns this line. description appears in the
// error message.
func (o *Output) WaitForLine(t testing.TB, patience time.Duration, description string, match func(string) bool) string {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case line, open := <-o.Unread:
			if !open {
				require.Fail(t, "the process has exited without the output: "+description, "%s", o.Tail())
			}
			if match(line) {
				return line
			}
		case <-limit:
			require.Fail(t, "no line of output: "+description, "%s", o.Tail())
		}
	}
}

// WaitForText waits until the output contains a text. WaitForText does not consume lines: WaitForLine still finds
// the lines before the text.
func (o *Output) WaitForText(t testing.TB, patience time.Duration, text string) {
	t.Helper()
	for limit := time.Now().Add(patience); !strings.Contains(o.Text(), text); time.Sleep(10 * time.Millisecond) {
		select {
		case <-o.ended:
			require.Contains(t, o.Text(), text, "the process has exited")
			return
		default:
			require.True(t, time.Now().Before(limit), "no output: %s\n%s", text, o.Tail())
		}
	}
}

// WaitForEnd waits until all processes have closed the output.
func (o *Output) WaitForEnd(t testing.TB, patience time.Duration) {
	t.Helper()
	select {
	case <-o.ended:
	case <-time.After(patience):
		t.Error("a process that the command has started is still running")
	}
	o.r.Close()
	<-o.ended
}

// Text returns the output that was read so far.
func (o *Output) Text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.lines, "\n")
}

// Tail returns the last lines that were read so far.
func (o *Output) Tail() string {
	lines := strings.Split(o.Text(), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}
