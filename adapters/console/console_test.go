package console_test

import (
	"errors"
	"fmt"
	"io"
	"math"
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

// TestCommands_HaveDocumentedEffects checks that each command has the documented effect, and that a
// line that no candidate has received is kept for the next candidate.
func TestCommands_HaveDocumentedEffects(t *testing.T) {
	in, input := io.Pipe()
	var out strings.Builder
	c := console.New(in, &out)
	one := c.Candidate("one")
	require.Empty(t, one.ID())
	ended := make(chan error, 1)
	go func() { ended <- one.ElectLeader() }()
	require.Equal(t, leaderelection.Status{CandidateID: "one"}, <-one.Status())

	fmt.Fprintln(input, "LEADER")
	first := (<-one.Status()).Leadership
	require.NoError(t, first.Err())
	fmt.Fprintln(input, "LEADER") // a second LEADER changes nothing
	fmt.Fprintln(input, "\nLEAD\nLEADER x\nNOTLEADER")
	require.Equal(t, leaderelection.Follower, (<-one.Status()).Role)
	require.ErrorIs(t, first.Err(), console.ErrNotLeaderTyped)
	fmt.Fprintln(input, "NOTLEADER") // a second NOTLEADER changes nothing
	fmt.Fprintf(input, "LEADER %d\nLEADER %d\n", first.Token(), first.Token()+5)
	second := (<-one.Status()).Leadership
	require.Equal(t, first.Token()+5, second.Token())
	fmt.Fprintln(input, "ERROR")
	require.ErrorIs(t, (<-one.Status()).Err, console.ErrTyped)
	require.ErrorIs(t, <-ended, console.ErrTyped)
	require.ErrorIs(t, second.Err(), console.ErrTyped)

	two := c.Candidate("two")
	go func() { ended <- two.ElectLeader() }()
	<-two.Status()
	fmt.Fprintf(input, "LEADER %d\n", second.Token()+1)
	third := (<-two.Status()).Leadership
	require.Greater(t, third.Token(), second.Token())
	input.Close()
	require.ErrorIs(t, (<-two.Status()).Err, console.ErrEndOfInput)
	require.ErrorIs(t, <-ended, console.ErrEndOfInput)
	require.Contains(t, out.String(), `"LEAD": not one of`)
	require.Contains(t, out.String(), `"x": not a number`)

	three := c.Candidate("three")
	require.ErrorIs(t, three.ElectLeader(), console.ErrEndOfInput)
}

// TestCommands_GreatestTokenPreventsNextLeadership checks that the command LEADER has no effect after a leadership
// with the greatest possible token, because no greater token is left.
func TestCommands_GreatestTokenPreventsNextLeadership(t *testing.T) {
	var out strings.Builder
	in, input := io.Pipe()
	defer input.Close()
	one := console.New(in, &out).Candidate("one")
	ended := make(chan error, 1)
	go func() { ended <- one.ElectLeader() }()
	require.Equal(t, leaderelection.Follower, (<-one.Status()).Role)
	fmt.Fprintln(input, "LEADER 9223372036854775807")
	require.EqualValues(t, int64(math.MaxInt64), (<-one.Status()).Leadership.Token())
	fmt.Fprintln(input, "NOTLEADER")
	require.Equal(t, leaderelection.Follower, (<-one.Status()).Role)
	fmt.Fprintln(input, "LEADER\nERROR")
	require.ErrorIs(t, <-ended, console.ErrTyped)
	require.Contains(t, out.String(), "no token is greater")
	require.ErrorIs(t, (<-one.Status()).Err, console.ErrTyped)
}

// TestElectLeader_ReturnsErrorOfReader checks that the error of ElectLeader wraps the error of the
// reader.
func TestElectLeader_ReturnsErrorOfReader(t *testing.T) {
	in, input := io.Pipe()
	broken := errors.New("broken")
	input.CloseWithError(broken)
	require.ErrorIs(t, console.New(in, nil).Candidate("one").ElectLeader(), broken)
}

// TestClose_EndsCandidacy checks that Close ends a candidacy, and that a second Close does not panic.
func TestClose_EndsCandidacy(t *testing.T) {
	in, input := io.Pipe()
	defer input.Close()
	c := console.New(in, nil)
	c.Close()
	c.Close()
	require.ErrorIs(t, c.Candidate("one").ElectLeader(), console.ErrEndOfInput)
}

// operator elects one candidate after the other by the command LEADER.
type operator struct {
	mu         sync.Mutex
	queue      []*operatedCandidate
	candidates int // candidates is the number of candidates that were created.
	token      int
	writes     sync.WaitGroup
}

// operatedCandidate is a candidate with a separate console.
type operatedCandidate struct {
	*console.Candidate
	operator *operator
	console  *console.Console
	input    *io.PipeWriter
	// The operator's mu guards these fields.
	started, resigned bool
}

func (o *operator) newCandidate(int) (leaderelection.Candidate, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.candidates++
	in, input := io.Pipe()
	c := console.New(in, nil)
	return &operatedCandidate{Candidate: c.Candidate(fmt.Sprint("candidate ", o.candidates)), operator: o, console: c, input: input}, nil
}

func (c *operatedCandidate) ElectLeader() error {
	o := c.operator
	o.mu.Lock()
	if !c.started && !c.resigned {
		c.started = true
		if o.queue = append(o.queue, c); len(o.queue) == 1 {
			o.elect(c)
		}
	}
	o.mu.Unlock()
	return c.Candidate.ElectLeader()
}

// elect makes a candidate the leader. The caller must hold mu.
func (o *operator) elect(c *operatedCandidate) {
	o.token++
	token := o.token
	o.writes.Go(func() { fmt.Fprintln(c.input, "LEADER", token) })
}

func (c *operatedCandidate) Resign() error {
	err := c.Candidate.Resign()
	c.console.Close()
	c.input.Close()
	o := c.operator
	o.mu.Lock()
	defer o.mu.Unlock()
	c.resigned = true
	if i := slices.Index(o.queue, c); i >= 0 {
		if o.queue = slices.Delete(o.queue, i, i+1); i == 0 && len(o.queue) > 0 {
			o.elect(o.queue[0])
		}
	}
	return err
}

func TestCandidate_SatisfiesContract(t *testing.T) {
	electiontest.Run(t, func(t electiontest.TB) *electiontest.Group {
		o := &operator{}
		t.Cleanup(o.writes.Wait)
		return &electiontest.Group{New: o.newCandidate, NoEnd: true}
	}, electiontest.WithFakeTime())
}
