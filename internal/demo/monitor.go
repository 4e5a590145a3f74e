package demo

// The board knows what every participant was told, and when.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-leaderelection/leaderelection"
)

// errTwoLeaders is what must never happen.
var errTwoLeaders = errors.New("two leaders at the same time")

// row is what is known of one participant.
type row struct {
	name     string
	election *leaderelection.Election // its candidacy of now
	status   leaderelection.Status    // what it was told last
	since    time.Time                // when
	gone     string                   // why it takes no part at present
	grant    *leaderelection.Leadership
}

func (r row) leads() bool {
	return r.gone == "" && r.status.Role == leaderelection.Leader
}

// board is safe for use by several goroutines.
type board struct {
	mu       sync.Mutex
	screen   *screen
	rows     []*row
	names    map[string]string // of candidates, by ID
	begin    time.Time         // of the step
	observed leaderelection.Observation
	ending   bool // candidacies may end
	problem  error
	changed  chan struct{} // closed, and made anew, at each change
}

func newBoard(out *screen, names ...string) *board {
	b := &board{screen: out, names: map[string]string{}, begin: time.Now(), changed: make(chan struct{})}
	for _, name := range names {
		b.rows = append(b.rows, &row{name: name, gone: "not started"})
	}
	return b
}

func (b *board) row(name string) *row {
	for _, r := range b.rows {
		if r.name == name {
			return r
		}
	}
	panic("no participant " + name)
}

// stands notes a new candidacy.
func (b *board) stands(name string, election *leaderelection.Election) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*b.row(name) = row{name: name, election: election}
	b.change()
}

// told notes what a participant has read from its Status channel.
func (b *board) told(name string, election *leaderelection.Election, s leaderelection.Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.row(name)
	if r.election != election || r.gone != "" {
		return // nobody is there to be told
	}
	if s.CandidateID != "" {
		b.names[s.CandidateID] = name
	}
	if s.Leadership != nil {
		b.referee(name, s.Leadership)
		r.grant = s.Leadership
	}
	if s.Err != nil && !b.ending {
		b.problem = fmt.Errorf("the candidacy of %s has ended: %w", name, s.Err)
	}
	r.status, r.since = s, time.Now()
	// That the demo closes its connections at the end is no news.
	if !b.ending || !errors.Is(s.Err, leaderelection.ErrConnClosed) {
		b.event(r.since, name, b.describe(r), roleStyle(s))
	}
	b.change()
}

// referee looks for leaderships that are not over when another one begins.
func (b *board) referee(name string, l *leaderelection.Leadership) {
	for _, r := range b.rows {
		switch {
		case r.name == name || r.grant == nil:
		case r.gone == "" && r.grant.Err() == nil:
			b.problem = fmt.Errorf("%w: %s and %s", errTwoLeaders, r.name, name)
		case r.grant.Token() >= l.Token():
			b.problem = fmt.Errorf("%s has token %d, and %s had %d before", name, l.Token(), r.name, r.grant.Token())
		}
	}
}

// left notes that a candidacy's Status channel was closed.
func (b *board) left(name string, election *leaderelection.Election) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.row(name)
	if r.election != election || r.gone != "" {
		return
	}
	switch err := r.status.Err; {
	case err == nil:
		r.gone = "has resigned"
	case errors.Is(err, leaderelection.ErrElectionOver):
		r.gone = "has ended: the election is over"
	default:
		r.gone = "out: " + err.Error()
	}
	b.change()
}

// crashed notes that from now on nobody reads what the participant is told.
func (b *board) crashed(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.row(name)
	r.gone = "crashed"
	b.event(time.Now(), name, "crashes", red)
	b.change()
}

// sees notes what the observer was told.
func (b *board) sees(o leaderelection.Observation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.observed = o
	b.change()
}

// happens shows an event of the story and returns its time.
func (b *board) happens(name, what string, s style) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.event(now, name, what, s)
	return now
}

// startClock makes now the zero of the times shown.
func (b *board) startClock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begin = time.Now()
	return b.begin
}

// expectEnd says that from now on it is no failure when a candidacy ends.
func (b *board) expectEnd() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ending = true
}

// state returns what is known of a participant.
func (b *board) state(name string) row {
	b.mu.Lock()
	defer b.mu.Unlock()
	return *b.row(name)
}

// await waits until the participant's row is as it should be, and at most for
// bound. what completes the sentence "name did not ...".
func (b *board) await(ctx context.Context, bound time.Duration, name, what string, ok func(row) bool) (r row, err error) {
	err = b.wait(ctx, bound, name+" did not "+what, func() bool {
		r = *b.row(name)
		return ok(r)
	})
	return r, err
}

// awaitObserver waits until the observer sees what the participants were told.
func (b *board) awaitObserver(ctx context.Context, bound time.Duration, ok func(leaderelection.Observation) bool) error {
	return b.wait(ctx, bound, "the observer did not see it", func() bool { return ok(b.observed) })
}

// wait waits until ok, which is called with mu held.
func (b *board) wait(ctx context.Context, bound time.Duration, complaint string, ok func() bool) error {
	limit := time.NewTimer(bound)
	defer limit.Stop()
	for {
		b.mu.Lock()
		done, problem, changed := ok(), b.problem, b.changed
		b.mu.Unlock()
		switch {
		case problem != nil:
			return problem
		case done:
			return nil
		}
		select {
		case <-changed:
		case <-limit.C:
			return fmt.Errorf("%s within %v", complaint, bound)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// change wakes those who await something. The caller holds mu.
func (b *board) change() {
	close(b.changed)
	b.changed = make(chan struct{})
	b.screen.paint(b.table(time.Now()))
}
