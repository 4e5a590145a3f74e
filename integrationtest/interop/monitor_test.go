package interop

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// monitor detects violations of mutual exclusion, without relying on ZooKeeper or a library. Participants in other
// processes send each of their steps to the monitor as a line on a connection, and continue when the monitor has
// answered:
//
//	acquire <resource> <name> write|read
//	change <resource> <name> read            the participant holds the resource as a reader from now on
//	hold <resource> <name>                   the participant waits until the test lets it continue
//	release <resource> <name>
//	take <resource> <name> <item>            the participant has received an item of a queue
type monitor struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu        sync.Mutex
	resources map[string]*sharedResource
	conns     map[net.Conn]struct{}
	closed    bool
}

func newMonitor() (*monitor, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &monitor{listener: listener, resources: map[string]*sharedResource{}, conns: map[net.Conn]struct{}{}}
	m.wg.Go(m.acceptConns)
	return m, nil
}

func (m *monitor) addr() string { return m.listener.Addr().String() }

func (m *monitor) acceptConns() {
	for {
		conn, err := m.listener.Accept()
		if err != nil {
			return // Accept fails after the monitor was closed
		}
		m.mu.Lock()
		if m.closed {
			conn.Close()
		} else {
			m.conns[conn] = struct{}{}
			m.wg.Go(func() { m.serveConn(conn) })
		}
		m.mu.Unlock()
	}
}

func (m *monitor) serveConn(conn net.Conn) {
	defer func() {
		conn.Close()
		m.mu.Lock()
		delete(m.conns, conn)
		m.mu.Unlock()
	}()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if err := m.execute(strings.Fields(lines.Text())); err != nil {
			fmt.Printf("monitor: %q: %v\n", lines.Text(), err)
			return
		}
		if _, err := conn.Write([]byte("ok\n")); err != nil {
			return
		}
	}
}

func (m *monitor) execute(words []string) error {
	if len(words) < 3 {
		return errors.New("the step has too few words")
	}
	m.mu.Lock()
	r := m.resources[words[1]]
	m.mu.Unlock()
	switch {
	case r == nil:
		return errors.New("no test has created this resource")
	case words[0] == "release":
		r.release(words[2])
	case words[0] == "hold":
		r.block(words[2], "hold")
	case len(words) < 4:
		return errors.New("the step has too few words")
	case words[0] == "acquire":
		r.acquire(words[2], words[3])
	case words[0] == "change":
		r.changeKind(words[2], words[3])
	case words[0] == "take":
		r.takeItem(words[2], words[3])
	default:
		return errors.New("unknown step")
	}
	return nil
}

func (m *monitor) close() error {
	m.mu.Lock()
	m.closed = true
	for conn := range m.conns {
		conn.Close()
	}
	m.mu.Unlock()
	err := m.listener.Close()
	m.wg.Wait()
	return err
}

// sharedResource is a lock, a semaphore, a leadership or a queue for which participants contend.
type sharedResource struct {
	name   string
	limit  int           // the number of writers that can hold the resource at the same time
	closed chan struct{} // closed when no holder has to wait any more
	close  func()        // closes the channel closed; it may be called more than once
	// blocked receives each holder, which then waits until the test calls holder.release. If blocked is nil, holders
	// do not wait.
	blocked chan *holder

	mu           sync.Mutex
	holders      map[string]string // the kind of each holder, write or read, by its name
	maxHolders   int               // the greatest number of holders at the same time
	acquisitions []string          // the names of the holders, in the order of their acquisitions
	items        map[string]string // the names of the consumers, by the item that each has received
	violations   []string
}

// holder is a participant that waits while it holds a resource. If the resource is a queue, the field kind contains
// the item.
type holder struct {
	name, kind string
	released   chan struct{}
}

// release lets the participant continue.
func (h *holder) release() { close(h.released) }

// newResource creates a resource. When the test ends, it requires that there were no violations. If
// block is true, each holder waits until the test releases it.
func (m *monitor) newResource(t *testing.T, limit int, block bool) *sharedResource {
	r := m.newUncheckedResource(t, limit, block)
	t.Cleanup(func() {
		require.Empty(t, r.listViolations())
		if !t.Failed() {
			require.Empty(t, r.holders)
		}
	})
	return r
}

func (m *monitor) newUncheckedResource(t *testing.T, limit int, block bool) *sharedResource {
	r := &sharedResource{
		name: strings.TrimPrefix(testenv.NewPath(t), "/"), limit: limit, closed: make(chan struct{}),
		holders: map[string]string{}, items: map[string]string{},
	}
	r.close = sync.OnceFunc(func() { close(r.closed) })
	if block {
		r.blocked = make(chan *holder, 100)
	}
	m.mu.Lock()
	m.resources[r.name] = r
	m.mu.Unlock()
	t.Cleanup(r.close)
	return r
}

func (r *sharedResource) acquire(name, kind string) {
	r.mu.Lock()
	if previous, held := r.holders[name]; held {
		r.violations = append(r.violations, fmt.Sprintf("%s acquires again, and holds it to %s", name, previous))
	}
	r.holders[name] = kind
	r.acquisitions = append(r.acquisitions, name)
	r.checkHolders()
	r.mu.Unlock()
	if r.blocked == nil {
		// Hold the resource for so long that a participant that violates the exclusion acquires the resource in this
		// time. The time is longer if several participants may hold the resource.
		if r.limit > 1 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Millisecond)
	}
	r.block(name, kind)
}

// changeKind records that a holder changes its kind, for instance from write to read after a downgrade.
func (r *sharedResource) changeKind(name, kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holders[name] == "" {
		r.violations = append(r.violations, name+" changes, and is not a holder")
	}
	r.holders[name] = kind
	r.checkHolders()
}

// checkHolders records a violation if the current holders exclude each other. The caller holds mu.
func (r *sharedResource) checkHolders() {
	writers := 0
	var all []string
	for name, kind := range r.holders {
		if kind == "write" {
			writers++
		}
		all = append(all, name+" to "+kind)
	}
	r.maxHolders = max(r.maxHolders, len(all))
	if writers > r.limit || writers > 0 && writers < len(all) {
		slices.Sort(all)
		r.violations = append(r.violations, "held together: "+strings.Join(all, ", "))
	}
}

// block waits until the test lets the participant continue.
func (r *sharedResource) block(name, kind string) {
	if r.blocked == nil {
		return
	}
	h := &holder{name, kind, make(chan struct{})}
	r.blocked <- h
	select {
	case <-h.released:
	case <-r.closed:
	}
}

func (r *sharedResource) release(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holders[name] == "" {
		r.violations = append(r.violations, name+" releases, and is not a holder")
	}
	delete(r.holders, name)
}

// takeItem records that a consumer has received an item of a queue, which no other consumer may
// receive.
func (r *sharedResource) takeItem(name, item string) {
	r.mu.Lock()
	if first, taken := r.items[item]; taken {
		r.violations = append(r.violations, fmt.Sprintf("%s was taken by %s and by %s", item, first, name))
	}
	r.items[item] = name
	r.acquisitions = append(r.acquisitions, name)
	r.mu.Unlock()
	r.block(name, item)
}

func (r *sharedResource) listViolations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.violations)
}

// countAcquisitions returns how often each participant has acquired the resource.
func (r *sharedResource) countAcquisitions() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := map[string]int{}
	for _, name := range r.acquisitions {
		n[name]++
	}
	return n
}

// countItems returns the number of items that consumers have taken.
func (r *sharedResource) countItems() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.items)
}

// countHandOvers returns how often a participant with the prefix next has acquired the resource
// directly after a participant with the prefix previous.
func (r *sharedResource) countHandOvers(previous, next string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := 1; i < len(r.acquisitions); i++ {
		if strings.HasPrefix(r.acquisitions[i-1], previous) && strings.HasPrefix(r.acquisitions[i], next) {
			n++
		}
	}
	return n
}

// waitHolder waits until a participant acquires the resource. If name is not empty, the participant must have that
// name.
func (r *sharedResource) waitHolder(t *testing.T, name string) *holder {
	t.Helper()
	h := testenv.Receive(t, r.blocked, "a holder "+name)
	if name != "" {
		require.Equal(t, name, h.name)
	}
	return h
}

// requireNoHolder requires that no participant acquires the resource within a short time.
func (r *sharedResource) requireNoHolder(t *testing.T) {
	t.Helper()
	select {
	case h := <-r.blocked:
		require.FailNow(t, "unexpected holder", "%s to %s", h.name, h.kind)
	case <-time.After(quietTime):
	}
}
