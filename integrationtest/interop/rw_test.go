package interop

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes/lock"
)

// kazooHeedsLater says of the version that has the defect of kazoo #649: one of its
// readers that waits looks at the last writer in the line, also one that has come after
// it, and who waits for the reader in turn.
const kazooHeedsLater = "2.8.0"

// Writers and readers of both sides contend; readers of kazoo do not, see below.
func TestRWMutex(t *testing.T) {
	for _, p := range []*peer{kazoo, curator} {
		t.Run(p.name, func(t *testing.T) {
			writers := matter{peer: p, kind: "write", open: p.writing}
			t.Run("writers exclude each other", func(t *testing.T) { writers.exclusion(t, 10) })
			t.Run("hand-over of writers", writers.handOver)
			t.Run("hand-over to a reader of the peer", matter{peer: p, kind: "read", open: p.writing}.handOver)
			t.Run("hand-over to a reader of Go", func(t *testing.T) { handOverToReader(t, p) })
			t.Run("readers together", func(t *testing.T) { readersTogether(t, p) })
			t.Run("readers and writers", func(t *testing.T) { readersAndWriters(t, p) })
		})
	}
}

// handOverToReader has a reader of Go wait behind a writer of the peer.
func handOverToReader(t *testing.T, p *peer) {
	p.use(t)
	r, path, conn := judge.room(t, 1, true), newPath(t), connect(t)
	writer := p.tell(t, "contend", 0, "write", path, r.name, p.name, 1, 0)
	v := r.next(t, p.name)
	done := visits(t, p.reading(t, conn, path), r, "go", "read", 1)
	inLine(t, conn, 2, path)
	r.nobody(t)
	v.letGo()
	writer.ok(t)
	r.next(t, "go").letGo()
	done()
}

// readersTogether has a reader of each side inside at the same time, whoever came
// first, and a writer behind both.
func readersTogether(t *testing.T, p *peer) {
	p.use(t)
	for _, goFirst := range []bool{true, false} {
		r, path, conn := judge.room(t, 1, true), newPath(t), connect(t)
		var reader *call
		var done func()
		var inside []*visitor
		for _, goNow := range []bool{goFirst, !goFirst} {
			if goNow {
				done = visits(t, p.reading(t, conn, path), r, "go", "read", 1)
			} else {
				reader = p.tell(t, "contend", 0, "read", path, r.name, p.name, 1, 0)
			}
			inside = append(inside, r.next(t, ""))
		}
		require.Equal(t, 2, r.most)
		// A writer of the one side waits for the readers of both.
		var behind func()
		if goFirst {
			behind = visits(t, p.writing(t, conn, path), r, "writer", "write", 1)
		} else {
			w := p.tell(t, "contend", 1, "write", path, r.name, "writer", 1, 0)
			behind = func() { w.ok(t) }
		}
		inLine(t, conn, 3, path)
		for _, v := range inside {
			r.nobody(t)
			v.letGo()
		}
		r.next(t, "writer").letGo()
		done()
		reader.ok(t)
		behind()
	}
}

func readersAndWriters(t *testing.T, p *peer) {
	p.use(t)
	const rounds = 10
	r, path, conn := judge.room(t, 1, false), newPath(t), connect(t)
	rw := p.rwMutex(t, conn, path)
	h, err := rw.Lock(waiting(t))
	require.NoError(t, err)
	want := map[string]int{}
	var waits []func()
	for i := range 2 {
		who := fmt.Sprintf("go%d", i)
		waits = append(waits, visits(t, p.writing(t, conn, path), r, who+"w", "write", rounds), visits(t, p.reading(t, conn, path), r, who+"r", "read", rounds))
		w := p.tell(t, "contend", i, "write", path, r.name, fmt.Sprintf("%s%dw", p.name, i), rounds, 0)
		waits = append(waits, func() { w.ok(t) })
		want[who+"w"], want[who+"r"], want[fmt.Sprintf("%s%dw", p.name, i)] = rounds, rounds, rounds
		if p == kazoo && p.version == kazooHeedsLater {
			continue
		}
		reader := fmt.Sprintf("%s%dr", p.name, i)
		c := p.tell(t, "contend", i, "read", path, r.name, reader, rounds, 0)
		waits = append(waits, func() { c.ok(t) })
		want[reader] = rounds
	}
	inLine(t, conn, 1+len(want), path)
	require.NoError(t, h.Release(waiting(t)))
	for _, wait := range waits {
		wait()
	}
	require.Equal(t, want, r.visits())
}

// A writer that becomes a reader lets in the other side's readers and keeps its
// writers out.
func TestDowngrade(t *testing.T) {
	p := curator
	t.Run("of Go", func(t *testing.T) {
		p.use(t)
		r, path, conn := judge.room(t, 1, true), newPath(t), connect(t)
		h, err := p.rwMutex(t, conn, path).Lock(waiting(t))
		require.NoError(t, err)
		done := make(chan struct{})
		go func() { defer close(done); r.enter("go", "write") }()
		v := r.next(t, "go")
		reader := p.tell(t, "contend", 0, "read", path, r.name, "reader", 1, 0)
		inLine(t, conn, 2, path)
		writer := p.tell(t, "contend", 1, "write", path, r.name, "writer", 1, 0)
		inLine(t, conn, 3, path)
		r.nobody(t)
		r.become("go", "read")
		require.NoError(t, h.Downgrade(waiting(t)))
		read := r.next(t, "reader")
		require.Equal(t, 2, r.most)
		read.letGo()
		reader.ok(t)
		r.nobody(t)
		require.NoError(t, h.Err())
		v.letGo()
		<-done
		r.leave("go")
		require.NoError(t, h.Release(waiting(t)))
		r.next(t, "writer").letGo()
		writer.ok(t)
	})
	// Curator's reader gets a number of its own in release 5.4.0 (CURATOR-621): it
	// stands behind writers who wait already, and they do not wait for it, whatever
	// library is theirs. So the writer comes after the downgrade here.
	t.Run("of Curator with no writer in line", func(t *testing.T) {
		p.use(t)
		r, path, conn := judge.room(t, 1, true), newPath(t), connect(t)
		c := p.tell(t, "contend", 0, "downgrade", path, r.name, p.name, 1, 0)
		v := r.next(t, p.name)
		reader := visits(t, p.reading(t, conn, path), r, "reader", "read", 1)
		inLine(t, conn, 2, path)
		r.nobody(t)
		v.letGo()
		// It reads now, and stays.
		both := map[string]*visitor{}
		for range 2 {
			v := r.next(t, "")
			both[v.who] = v
		}
		require.Contains(t, both, "reader")
		require.Contains(t, both, p.name)
		require.Equal(t, 2, r.most)
		writer := visits(t, p.writing(t, conn, path), r, "writer", "write", 1)
		inLine(t, conn, 3, path)
		both["reader"].letGo()
		reader()
		r.nobody(t)
		both[p.name].letGo()
		c.ok(t)
		r.next(t, "writer").letGo()
		writer()
	})
}

// A reader of this kazoo that has to wait goes on waiting for a writer of Go that came
// later and waits for it. Whoever shares a lock with it needs contexts that end.
func TestKazooReaderHeedsLaterWriters(t *testing.T) {
	p := kazoo
	p.use(t)
	if p.version != kazooHeedsLater {
		t.Skipf("kazoo %s is another version", p.version)
	}
	r, path, conn := judge.room(t, 1, true), newPath(t), connect(t)
	rw := p.rwMutex(t, conn, path)
	h, err := rw.Lock(waiting(t))
	require.NoError(t, err)
	reader := p.tell(t, "contend", 0, "read", path, r.name, p.name, 1, 0)
	inLine(t, conn, 2, path)
	ctx, cancel := context.WithCancel(waiting(t))
	defer cancel()
	later := make(chan error, 1)
	go func() {
		var h *lock.WriteHold
		h, err := rw.Lock(ctx)
		if err == nil {
			err = h.Release(context.Background())
		}
		later <- err
	}()
	inLine(t, conn, 3, path)
	require.NoError(t, h.Release(waiting(t)))
	r.nobody(t)
	select {
	case err := <-later:
		require.FailNow(t, "the writer does not wait", "%v", err)
	default:
	}
	cancel()
	require.ErrorIs(t, <-later, context.Canceled)
	r.next(t, p.name).letGo()
	reader.ok(t)
}
