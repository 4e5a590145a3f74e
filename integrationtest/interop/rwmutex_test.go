package interop

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
)

// kazooWithBug649 is the version with the defect kazoo #649: a waiting reader watches the last writer
// in the queue, even if that writer is later and waits for the reader.
const kazooWithBug649 = "2.8.0"

// TestRWMutex_ExcludesPeer checks that writers and readers in Go and of a peer exclude each other, and that waiting
// ones are granted after the others were released. Readers of kazoo take part only if the version of kazoo does not
// have the defect #649.
func TestRWMutex_ExcludesPeer(t *testing.T) {
	for _, p := range []*peer{kazoo, curator} {
		t.Run(p.name, func(t *testing.T) {
			writers := contention{peer: p, kind: "write", open: p.newWriteLock}
			t.Run("writers exclude each other", func(t *testing.T) { writers.testExclusion(t, 10) })
			t.Run("hand-over of writers", writers.testHandOver)
			t.Run("hand-over to a reader of the peer", contention{peer: p, kind: "read", open: p.newWriteLock}.testHandOver)
			t.Run("hand-over to a reader of Go", func(t *testing.T) { testHandOverToReader(t, p) })
			t.Run("readers together", func(t *testing.T) { testReadersTogether(t, p) })
			t.Run("readers and writers", func(t *testing.T) { testReadersAndWriters(t, p) })
		})
	}
}

// testHandOverToReader makes a reader in Go wait for a writer of the peer.
func testHandOverToReader(t *testing.T, p *peer) {
	p.requirePeer(t)
	r, path, conn := exclusionMonitor.newResource(t, 1, true), testenv.NewPath(t), connect(t)
	writer := p.sendCommand(t, "contend", 0, "write", path, r.name, p.name, 1, 0)
	v := r.waitHolder(t, p.name)
	done := acquireRepeatedly(t, p.newReadLock(t, conn, path), r, "go", "read", 1)
	waitChildren(t, conn, 2, path)
	r.requireNoHolder(t)
	v.release()
	writer.wait(t)
	r.waitHolder(t, "go").release()
	done()
}

// testReadersTogether requires that a reader in Go and a reader of the peer can hold the lock at the same time, in
// either order, and that a writer waits for both.
func testReadersTogether(t *testing.T, p *peer) {
	p.requirePeer(t)
	for _, goFirst := range []bool{true, false} {
		r, path, conn := exclusionMonitor.newResource(t, 1, true), testenv.NewPath(t), connect(t)
		var reader *call
		var done func()
		var readers []*holder
		for _, goNow := range []bool{goFirst, !goFirst} {
			if goNow {
				done = acquireRepeatedly(t, p.newReadLock(t, conn, path), r, "go", "read", 1)
			} else {
				reader = p.sendCommand(t, "contend", 0, "read", path, r.name, p.name, 1, 0)
			}
			readers = append(readers, r.waitHolder(t, ""))
		}
		require.Equal(t, 2, r.maxHolders)
		// A writer, of Go or of the peer, waits for both readers.
		var waitWriter func()
		if goFirst {
			waitWriter = acquireRepeatedly(t, p.newWriteLock(t, conn, path), r, "writer", "write", 1)
		} else {
			w := p.sendCommand(t, "contend", 1, "write", path, r.name, "writer", 1, 0)
			waitWriter = func() { w.wait(t) }
		}
		waitChildren(t, conn, 3, path)
		for _, v := range readers {
			r.requireNoHolder(t)
			v.release()
		}
		r.waitHolder(t, "writer").release()
		done()
		reader.wait(t)
		waitWriter()
	}
}

func testReadersAndWriters(t *testing.T, p *peer) {
	p.requirePeer(t)
	const rounds = 10
	r, path, conn := exclusionMonitor.newResource(t, 1, false), testenv.NewPath(t), connect(t)
	rw := p.newRWMutex(t, conn, path)
	h, err := rw.Lock(testenv.ContextOf(t))
	require.NoError(t, err)
	want := map[string]int{}
	var waits []func()
	for i := range 2 {
		name := fmt.Sprintf("go%d", i)
		waits = append(waits, acquireRepeatedly(t, p.newWriteLock(t, conn, path), r, name+"w", "write", rounds), acquireRepeatedly(t, p.newReadLock(t, conn, path), r, name+"r", "read", rounds))
		w := p.sendCommand(t, "contend", i, "write", path, r.name, fmt.Sprintf("%s%dw", p.name, i), rounds, 0)
		waits = append(waits, func() { w.wait(t) })
		want[name+"w"], want[name+"r"], want[fmt.Sprintf("%s%dw", p.name, i)] = rounds, rounds, rounds
		if p == kazoo && p.version == kazooWithBug649 {
			continue
		}
		reader := fmt.Sprintf("%s%dr", p.name, i)
		c := p.sendCommand(t, "contend", i, "read", path, r.name, reader, rounds, 0)
		waits = append(waits, func() { c.wait(t) })
		want[reader] = rounds
	}
	waitChildren(t, conn, 1+len(want), path)
	require.NoError(t, bubble.Repeated(h.Release))
	for _, wait := range waits {
		wait()
	}
	require.Equal(t, want, r.countAcquisitions())
}

// TestRWMutex_DowngradeAdmitsReadersOfPeer checks that a holder of the write lock that downgrades to a read lock
// admits readers of the other library, and still excludes its writers.
func TestRWMutex_DowngradeAdmitsReadersOfPeer(t *testing.T) {
	p := curator
	t.Run("of Go", func(t *testing.T) {
		p.requirePeer(t)
		r, path, conn := exclusionMonitor.newResource(t, 1, true), testenv.NewPath(t), connect(t)
		h, err := p.newRWMutex(t, conn, path).Lock(testenv.ContextOf(t))
		require.NoError(t, err)
		done := make(chan struct{})
		go func() { defer close(done); r.acquire("go", "write") }()
		v := r.waitHolder(t, "go")
		reader := p.sendCommand(t, "contend", 0, "read", path, r.name, "reader", 1, 0)
		waitChildren(t, conn, 2, path)
		writer := p.sendCommand(t, "contend", 1, "write", path, r.name, "writer", 1, 0)
		waitChildren(t, conn, 3, path)
		r.requireNoHolder(t)
		r.changeKind("go", "read")
		require.NoError(t, bubble.Repeated(h.Downgrade))
		read := r.waitHolder(t, "reader")
		require.Equal(t, 2, r.maxHolders)
		read.release()
		reader.wait(t)
		r.requireNoHolder(t)
		require.NoError(t, h.Err())
		v.release()
		<-done
		r.release("go")
		require.NoError(t, bubble.Repeated(h.Release))
		r.waitHolder(t, "writer").release()
		writer.wait(t)
	})
	// In release 5.4.0 of Curator, a reader that was a writer has a new sequence number (CURATOR-621). It is behind
	// the writers that are already waiting, and these writers do not wait for the reader, even if they use Curator.
	// Therefore the writer of this test joins after the downgrade.
	t.Run("of Curator without a waiting writer", func(t *testing.T) {
		p.requirePeer(t)
		r, path, conn := exclusionMonitor.newResource(t, 1, true), testenv.NewPath(t), connect(t)
		c := p.sendCommand(t, "contend", 0, "downgrade", path, r.name, p.name, 1, 0)
		v := r.waitHolder(t, p.name)
		reader := acquireRepeatedly(t, p.newReadLock(t, conn, path), r, "reader", "read", 1)
		waitChildren(t, conn, 2, path)
		r.requireNoHolder(t)
		v.release()
		// After the downgrade, the former writer still holds the lock as a reader.
		both := map[string]*holder{}
		for range 2 {
			v := r.waitHolder(t, "")
			both[v.name] = v
		}
		require.Contains(t, both, "reader")
		require.Contains(t, both, p.name)
		require.Equal(t, 2, r.maxHolders)
		writer := acquireRepeatedly(t, p.newWriteLock(t, conn, path), r, "writer", "write", 1)
		waitChildren(t, conn, 3, path)
		both["reader"].release()
		reader()
		r.requireNoHolder(t)
		both[p.name].release()
		c.wait(t)
		r.waitHolder(t, "writer").release()
		writer()
	})
}

// TestRWMutex_KazooReaderWaitsForLaterWriter documents the defect kazoo #649: a waiting reader of kazoo and a later
// writer in Go wait for each other. A program that shares a lock with this version of kazoo needs contexts with a
// deadline.
func TestRWMutex_KazooReaderWaitsForLaterWriter(t *testing.T) {
	p := kazoo
	p.requirePeer(t)
	if p.version != kazooWithBug649 {
		t.Skipf("kazoo %s is not the version with the defect", p.version)
	}
	r, path, conn := exclusionMonitor.newResource(t, 1, true), testenv.NewPath(t), connect(t)
	rw := p.newRWMutex(t, conn, path)
	h, err := rw.Lock(testenv.ContextOf(t))
	require.NoError(t, err)
	reader := p.sendCommand(t, "contend", 0, "read", path, r.name, p.name, 1, 0)
	waitChildren(t, conn, 2, path)
	ctx, cancel := context.WithCancel(testenv.ContextOf(t))
	defer cancel()
	later := make(chan error, 1)
	go func() {
		var h *lock.WriteHold
		h, err := rw.Lock(ctx)
		if err == nil {
			err = bubble.Repeated(h.Release)
		}
		later <- err
	}()
	waitChildren(t, conn, 3, path)
	require.NoError(t, bubble.Repeated(h.Release))
	r.requireNoHolder(t)
	select {
	case err := <-later:
		require.FailNow(t, "the writer does not wait", "%v", err)
	default:
	}
	cancel()
	require.ErrorIs(t, <-later, context.Canceled)
	r.waitHolder(t, p.name).release()
	reader.wait(t)
}
