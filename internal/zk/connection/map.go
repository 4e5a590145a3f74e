package connection

import (
	"runtime"
	"sync"
	"weak"

	"github.com/go-zookeeper/zk"
)

// Map holds one value for each connection. Its methods may be called from any
// goroutine.
type Map[V any] struct {
	create func(*zk.Conn) V

	mu      sync.Mutex
	entries map[weak.Pointer[zk.Conn]]*entry[V]
}

type entry[V any] struct {
	once  sync.Once
	value V
}

// NewMap returns an empty map. create returns the value of a connection and is
// called once for each, on the first call of Of. It is called without a lock of
// the map. Neither the value nor anything that is reachable from it may refer to
// the connection for longer than a request takes: such a reference would keep both
// in memory. V is usually a pointer to a struct that contains a mutex.
func NewMap[V any](create func(*zk.Conn) V) *Map[V] {
	return &Map[V]{create: create, entries: map[weak.Pointer[zk.Conn]]*entry[V]{}}
}

// Of returns the value of conn, which must not be nil. All calls for one connection return the
// same value. A call waits while a concurrent call creates the value.
func (m *Map[V]) Of(conn *zk.Conn) V {
	e := m.entryOf(conn)
	e.once.Do(func() { e.value = m.create(conn) })
	return e.value
}

func (m *Map[V]) entryOf(conn *zk.Conn) *entry[V] {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := weak.Make(conn)
	e := m.entries[key]
	if e == nil {
		runtime.AddCleanup(conn, m.forget, key)
		e = &entry[V]{}
		m.entries[key] = e
	}
	return e
}

// Len returns the number of connections with a value, for tests. A connection that
// is unreachable may be counted until the garbage collector has found that.
func (m *Map[V]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.entries)
}

func (m *Map[V]) forget(key weak.Pointer[zk.Conn]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, key)
}
