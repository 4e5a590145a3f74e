package connection

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestGranted_ReadsTimeoutByReflection checks that Granted reads the granted timeout from the private field of the
// client library from the first session on, even while the connection breaks and the client reconnects.
func TestGranted_ReadsTimeoutByReflection(t *testing.T) {
	require.GreaterOrEqual(t, timeoutField, 0, "this release of the client library does not contain the field")
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t, zktest.WithSessionTimeouts(time.Second, 2*time.Second))
		hook := srv.Before(zktest.Match{Op: zktest.OpConnect}, zktest.Cut)
		conn, _, err := srv.Connect(4 * time.Second)
		require.NoError(t, err)
		time.Sleep(10 * time.Millisecond)
		require.Zero(t, Granted(conn), "the servers have not granted the requested timeout yet")
		hook.Remove()
		for i := range 50 {
			for conn.State() != zk.StateHasSession {
				time.Sleep(time.Millisecond)
			}
			require.Equal(t, 2*time.Second, Granted(conn))
			if i%2 == 0 {
				srv.DropConnections()
			}
			time.Sleep(time.Duration(i) * time.Millisecond)
		}
		conn.Close()
	})
}

// Len returns the number of connections with a value. It may include connections that the program does not
// reference any more.
func (m *Map[V]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.values)
}

// TestMap_OfReturnsSameValueForConnection checks that all calls of Of for one connection return the same value, and
// that another connection has another value.
func TestMap_OfReturnsSameValueForConnection(t *testing.T) {
	created := 0
	m := NewMap(func(*zk.Conn) *int {
		created++
		n := created
		return &n
	})
	a, b := new(zk.Conn), new(zk.Conn)
	first := m.Of(a)
	require.Equal(t, 1, *first)
	require.Equal(t, 2, *m.Of(b))
	require.Same(t, first, m.Of(a))
	require.Equal(t, 2, m.Len())
	require.Panics(t, func() { m.Of(nil) })
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
}

// TestMap_ConcurrentCallsReturnOneValue checks that concurrent calls of Of create one value, and that all of these
// calls return this value.
func TestMap_ConcurrentCallsReturnOneValue(t *testing.T) {
	m := NewMap(func(*zk.Conn) *int { return new(int) })
	conn := new(zk.Conn)
	values := make([]*int, 50)
	var calls sync.WaitGroup
	for i := range values {
		calls.Go(func() { values[i] = m.Of(conn) })
	}
	calls.Wait()
	for _, v := range values {
		require.Same(t, values[0], v)
	}
	require.Equal(t, 1, m.Len())
	runtime.KeepAlive(conn)
}

// TestMap_OfMayBeCalledByCreate checks that the function that creates the value of a connection may call Of for
// another connection.
func TestMap_OfMayBeCalledByCreate(t *testing.T) {
	outer, inner := new(zk.Conn), new(zk.Conn)
	var m *Map[int]
	m = NewMap(func(conn *zk.Conn) int {
		if conn == outer {
			return 1 + m.Of(inner)
		}
		return 1
	})
	require.Equal(t, 2, m.Of(outer))
	runtime.KeepAlive(outer)
	runtime.KeepAlive(inner)
}

// TestMap_DropsValuesOfUnreachableConnections checks that the map drops the value of a connection that the program
// does not reference any more, and keeps the values of other connections.
func TestMap_DropsValuesOfUnreachableConnections(t *testing.T) {
	m := NewMap(func(*zk.Conn) *[1 << 10]byte { return new([1 << 10]byte) })
	kept := new(zk.Conn)
	value := m.Of(kept)
	for range 1000 {
		m.Of(new(zk.Conn))
	}
	for m.Len() > 1 { // this loop does not end if a value keeps its connection in memory
		runtime.GC()
	}
	require.Same(t, value, m.Of(kept))
	require.Equal(t, 1, m.Len())
	runtime.KeepAlive(kept)
}

// TestTable_ForgetsAllEntriesWhenFull checks that Remember removes all entries of a full table before it adds an
// entry, but not if it changes an existing entry.
func TestTable_ForgetsAllEntriesWhenFull(t *testing.T) {
	table := newTable[int, bool]()
	for i := range maxRemembered {
		table.Remember(i, true)
	}
	table.Remember(0, false)
	require.Len(t, table.Entries, maxRemembered)
	require.False(t, table.Entries[0])
	table.Remember(-1, true)
	require.Equal(t, map[int]bool{-1: true}, table.Entries)
}
