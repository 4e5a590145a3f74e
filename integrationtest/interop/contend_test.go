package interop

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// entrance waits until it is granted what it stands for.
type entrance func(ctx context.Context) (hold, error)

// hold is what was granted.
type hold interface {
	Err() error // why it is lost; nil while it is not
	Release(ctx context.Context) error
}

// matter is what Go and a peer contend for.
type matter struct {
	peer *peer
	kind string // the peer's word for it
	max  int    // the semaphore's limit
	path string
	// line is where below path those who hold or wait have znodes. Of a semaphore only
	// those who wait do, at the mutex within it.
	line string
	// open makes the entrance of Go.
	open func(t *testing.T, conn *zk.Conn, path string) entrance
}

// visit is one visit of a Go participant.
func visit(ctx context.Context, e entrance, r *room, who, kind string) error {
	h, err := e(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", who, err)
	}
	r.enter(who, kind)
	err = h.Err()
	r.leave(who)
	if err != nil {
		return fmt.Errorf("%s was inside, and has lost it: %w", who, err)
	}
	return h.Release(ctx)
}

// visits begins visits of a Go participant; the function that it returns waits for
// their end.
func visits(t *testing.T, e entrance, r *room, who, kind string, rounds int) (wait func()) {
	ctx := waiting(t)
	failed := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < rounds && err == nil; i++ {
			err = visit(ctx, e, r, who, kind)
		}
		failed <- err
	}()
	var once sync.Once
	wait = func() { once.Do(func() { require.NoError(t, <-failed) }) }
	t.Cleanup(func() {
		r.close() // where the test has failed
		wait()
	})
	return wait
}

// contend has the peer contend, who calls itself who.
func (m matter) contend(t *testing.T, session int, r *room, who string, rounds int) *call {
	t.Helper()
	return m.peer.tell(t, "contend", session, m.kind, m.path, r.name, who, rounds, m.max)
}

// kindOf is what the peer does inside.
func (m matter) kindOf() string {
	if m.kind == "read" {
		return "read"
	}
	return "write"
}

// exclusion has two of each side contend, in several rounds. The test has what they
// want until all stand in line, so that nobody is done before the others begin.
func (m matter) exclusion(t *testing.T, rounds int) {
	m.peer.use(t)
	m.path = newPath(t)
	a, b := connect(t), connect(t)
	r := judge.room(t, max(m.max, 1), false)
	holds := m.fill(t, a)
	m.inLine(t, a, len(holds))

	var waits []func()
	var calls []*call
	for i, conn := range []*zk.Conn{a, b} {
		waits = append(waits, visits(t, m.open(t, conn, m.path), r, fmt.Sprintf("go%d", i), "write", rounds))
		calls = append(calls, m.contend(t, i, r, fmt.Sprintf("%s%d", m.peer.name, i), rounds))
	}
	m.inLine(t, a, len(holds)+4)
	for _, h := range holds {
		require.NoError(t, h.Release(waiting(t)))
	}
	for i := range waits {
		waits[i]()
		calls[i].ok(t)
	}
	require.Equal(t, map[string]int{"go0": rounds, "go1": rounds, m.peer.name + "0": rounds, m.peer.name + "1": rounds}, r.visits())
	require.Positive(t, r.turns("go", m.peer.name))
	require.Positive(t, r.turns(m.peer.name, "go"))
}

// fill takes all that there is, for the test itself.
func (m matter) fill(t *testing.T, conn *zk.Conn) (holds []hold) {
	for range max(m.max, 1) {
		h, err := m.open(t, conn, m.path)(waiting(t))
		require.NoError(t, err)
		holds = append(holds, h)
	}
	return holds
}

// inLine waits until n hold or wait.
func (m matter) inLine(t *testing.T, conn *zk.Conn, n int) {
	t.Helper()
	inLine(t, conn, n-m.max, m.path+m.line)
}

// handOver has the peer wait behind Go, and Go behind the peer.
func (m matter) handOver(t *testing.T) {
	m.peer.use(t)
	m.path = newPath(t)
	conn := connect(t)
	r := judge.room(t, 1, true)
	open := m.open(t, conn, m.path)

	first := visits(t, open, r, "go1", "write", 1)
	v := r.next(t, "go1")
	m.inLine(t, conn, 1)
	peer := m.contend(t, 0, r, m.peer.name, 1)
	m.inLine(t, conn, 2)
	r.nobody(t)
	v.letGo()
	v = r.next(t, m.peer.name)
	require.Equal(t, m.kindOf(), v.kind)
	first()

	second := visits(t, open, r, "go2", "write", 1)
	m.inLine(t, conn, 2)
	r.nobody(t)
	v.letGo()
	peer.ok(t)
	r.next(t, "go2").letGo()
	second()
}
