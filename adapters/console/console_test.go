package console_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/console"
	"github.com/go-leaderelection/leaderelection/electiontest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWords: every word, in a script whose lines wait for whoever takes part.
func TestWords(t *testing.T) {
	in, type_ := io.Pipe()
	var out strings.Builder
	c := console.New(in, &out)
	one := c.Candidate("one")
	require.Empty(t, one.ID())
	ended := make(chan error, 1)
	go func() { ended <- one.ElectLeader() }()
	require.Equal(t, leaderelection.Status{CandidateID: "one"}, <-one.Status())

	fmt.Fprintln(type_, "LEADER")
	first := (<-one.Status()).Leadership
	require.NoError(t, first.Err())
	fmt.Fprintln(type_, "LEADER") // again
	fmt.Fprintln(type_, "\nLEAD\nLEADER x\nNOTLEADER")
	require.Equal(t, leaderelection.Follower, (<-one.Status()).Role)
	require.ErrorIs(t, first.Err(), console.ErrNotLeader)
	fmt.Fprintln(type_, "NOTLEADER") // again
	fmt.Fprintf(type_, "LEADER %d\nLEADER %d\n", first.Token(), first.Token()+5)
	second := (<-one.Status()).Leadership
	require.Equal(t, first.Token()+5, second.Token())
	fmt.Fprintln(type_, "ERROR")
	require.ErrorIs(t, (<-one.Status()).Err, console.ErrTyped)
	require.ErrorIs(t, <-ended, console.ErrTyped)
	require.ErrorIs(t, second.Err(), console.ErrTyped)

	two := c.Candidate("two")
	go func() { ended <- two.ElectLeader() }()
	<-two.Status()
	fmt.Fprintf(type_, "LEADER %d\n", second.Token()+1)
	third := (<-two.Status()).Leadership
	require.Greater(t, third.Token(), second.Token())
	type_.Close()
	require.ErrorIs(t, (<-two.Status()).Err, console.ErrEndOfInput)
	require.ErrorIs(t, <-ended, console.ErrEndOfInput)
	require.Contains(t, out.String(), `"LEAD": not one of`)
	require.Contains(t, out.String(), `"x": not a number`)

	three := c.Candidate("three")
	require.ErrorIs(t, three.ElectLeader(), console.ErrEndOfInput)
}

func TestReaderFails(t *testing.T) {
	in, type_ := io.Pipe()
	broken := errors.New("broken")
	type_.CloseWithError(broken)
	require.ErrorIs(t, console.New(in, nil).Candidate("one").ElectLeader(), broken)
}

func TestClose(t *testing.T) {
	in, type_ := io.Pipe()
	defer type_.Close()
	c := console.New(in, nil)
	c.Close()
	c.Close()
	require.ErrorIs(t, c.Candidate("one").ElectLeader(), console.ErrEndOfInput)
}

// operator types LEADER for one candidate after the other.
type operator struct {
	mu    sync.Mutex
	line  []*typed
	made  int
	token int
	wg    sync.WaitGroup
}

// typed is a candidate with a console of its own.
type typed struct {
	*console.Candidate
	o       *operator
	console *console.Console
	type_   *io.PipeWriter
	// Guarded by o.mu.
	started, resigned bool
}

func (o *operator) candidate(int) (leaderelection.Candidate, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.made++
	in, type_ := io.Pipe()
	c := console.New(in, nil)
	return &typed{Candidate: c.Candidate(fmt.Sprint("candidate ", o.made)), o: o, console: c, type_: type_}, nil
}

func (c *typed) ElectLeader() error {
	c.o.mu.Lock()
	if !c.started && !c.resigned {
		c.started = true
		if c.o.line = append(c.o.line, c); len(c.o.line) == 1 {
			c.o.elect(c)
		}
	}
	c.o.mu.Unlock()
	return c.Candidate.ElectLeader()
}

// elect is called with mu held.
func (o *operator) elect(c *typed) {
	o.token++
	token := o.token
	o.wg.Go(func() { fmt.Fprintln(c.type_, "LEADER", token) })
}

func (c *typed) Resign() error {
	err := c.Candidate.Resign()
	c.console.Close()
	c.type_.Close()
	c.o.mu.Lock()
	defer c.o.mu.Unlock()
	c.resigned = true
	if i := slices.Index(c.o.line, c); i >= 0 {
		if c.o.line = slices.Delete(c.o.line, i, i+1); i == 0 && len(c.o.line) > 0 {
			c.o.elect(c.o.line[0])
		}
	}
	return err
}

func TestConformance(t *testing.T) {
	electiontest.Run(t, func(t electiontest.TB) *electiontest.Group {
		o := &operator{}
		t.Cleanup(o.wg.Wait)
		return &electiontest.Group{New: o.candidate, NoEnd: true}
	}, electiontest.FakeTime())
}
