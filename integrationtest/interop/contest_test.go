package interop

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
)

// acquireFunc acquires a lock, a lease of a semaphore, or a leadership.
type acquireFunc func(ctx context.Context) (hold, error)

// hold is a lock, a lease or a leadership that a participant has acquired.
type hold interface {
	Err() error // returns the reason why the hold was lost, or nil
	Release() error
}

// contention describes a lock, a semaphore or an election for which Go and a peer contend.
type contention struct {
	peer *peer
	kind string // the word with which commands of the peer name the kind of resource
	max  int    // the limit of a semaphore; 0 for other resources
	path string
	// queuePath, appended to path, is the parent of the znodes of holders and waiters. For a semaphore, it is the
	// parent of the znodes of waiters only.
	queuePath string
	// open returns the acquireFunc for a participant in Go.
	open func(t *testing.T, conn *zk.Conn, path string) acquireFunc
}

// acquireOnce acquires and releases the resource once, as a participant in Go, and reports this to the monitor's
// resource r.
func acquireOnce(ctx context.Context, acquire acquireFunc, r *sharedResource, name, kind string) error {
	h, err := acquire(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	r.acquire(name, kind)
	err = h.Err()
	r.release(name)
	if err != nil {
		return fmt.Errorf("%s has lost the resource: %w", name, err)
	}
	return bubble.Repeated(h.Release)
}

// acquireRepeatedly lets a participant in Go acquire and release the resource in the background, as often as rounds
// says. The returned function waits until the participant has done so.
func acquireRepeatedly(t *testing.T, acquire acquireFunc, r *sharedResource, name, kind string, rounds int) (wait func()) {
	ctx := testenv.ContextOf(t)
	failed := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < rounds && err == nil; i++ {
			err = acquireOnce(ctx, acquire, r, name, kind)
		}
		failed <- err
	}()
	var once sync.Once
	wait = func() { once.Do(func() { require.NoError(t, <-failed) }) }
	t.Cleanup(func() {
		r.close() // the participant must end even if the test has failed
		wait()
	})
	return wait
}

// startPeer makes the peer acquire and release the resource. The peer reports this to the monitor's resource r under
// the given name.
func (c contention) startPeer(t *testing.T, session int, r *sharedResource, name string, rounds int) *call {
	t.Helper()
	return c.peer.sendCommand(t, "contend", session, c.kind, c.path, r.name, name, rounds, c.max)
}

// holderKind returns the kind, write or read, under which the monitor records that the peer holds the resource.
func (c contention) holderKind() string {
	if c.kind == "read" {
		return "read"
	}
	return "write"
}

// testExclusion lets two participants in Go and two participants of the peer contend for the resource. The test
// itself holds the resource until all four wait, so that none of them ends before the others start.
func (c contention) testExclusion(t *testing.T, rounds int) {
	c.peer.requirePeer(t)
	c.path = testenv.NewPath(t)
	a, b := connect(t), connect(t)
	r := exclusionMonitor.newResource(t, max(c.max, 1), false)
	holds := c.acquireAll(t, a)
	c.waitQueue(t, a, len(holds))

	var waits []func()
	var calls []*call
	for i, conn := range []*zk.Conn{a, b} {
		waits = append(waits, acquireRepeatedly(t, c.open(t, conn, c.path), r, fmt.Sprintf("go%d", i), "write", rounds))
		calls = append(calls, c.startPeer(t, i, r, fmt.Sprintf("%s%d", c.peer.name, i), rounds))
	}
	c.waitQueue(t, a, len(holds)+4)
	for _, h := range holds {
		require.NoError(t, bubble.Repeated(h.Release))
	}
	for i := range waits {
		waits[i]()
		calls[i].wait(t)
	}
	require.Equal(t, map[string]int{"go0": rounds, "go1": rounds, c.peer.name + "0": rounds, c.peer.name + "1": rounds}, r.countAcquisitions())
	require.Positive(t, r.countHandOvers("go", c.peer.name))
	require.Positive(t, r.countHandOvers(c.peer.name, "go"))
}

// acquireAll acquires the lock, or all leases of the semaphore, so that all participants wait.
func (c contention) acquireAll(t *testing.T, conn *zk.Conn) (holds []hold) {
	for range max(c.max, 1) {
		h, err := c.open(t, conn, c.path)(testenv.ContextOf(t))
		require.NoError(t, err)
		holds = append(holds, h)
	}
	return holds
}

// waitQueue waits until n participants hold the resource or wait for the resource.
func (c contention) waitQueue(t *testing.T, conn *zk.Conn, n int) {
	t.Helper()
	waitChildren(t, conn, n-c.max, c.path+c.queuePath)
}

// testHandOver makes the peer wait for a participant in Go, and then a participant in Go wait for the peer.
func (c contention) testHandOver(t *testing.T) {
	c.peer.requirePeer(t)
	c.path = testenv.NewPath(t)
	conn := connect(t)
	r := exclusionMonitor.newResource(t, 1, true)
	open := c.open(t, conn, c.path)

	first := acquireRepeatedly(t, open, r, "go1", "write", 1)
	h := r.waitHolder(t, "go1")
	c.waitQueue(t, conn, 1)
	peer := c.startPeer(t, 0, r, c.peer.name, 1)
	c.waitQueue(t, conn, 2)
	r.requireNoHolder(t)
	h.release()
	h = r.waitHolder(t, c.peer.name)
	require.Equal(t, c.holderKind(), h.kind)
	first()

	second := acquireRepeatedly(t, open, r, "go2", "write", 1)
	c.waitQueue(t, conn, 2)
	r.requireNoHolder(t)
	h.release()
	peer.wait(t)
	r.waitHolder(t, "go2").release()
	second()
}
