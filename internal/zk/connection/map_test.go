package connection_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// All calls for one connection return the same value, and other connections have different values.
func TestOf(t *testing.T) {
	created := 0
	m := connection.NewMap(func(*zk.Conn) *int {
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

// Concurrent calls create one value, and all of them return it.
func TestOf_ConcurrentCalls(t *testing.T) {
	m := connection.NewMap(func(*zk.Conn) *int { return new(int) })
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

// create may use the map for another connection.
func TestOf_CreateUsesTheMap(t *testing.T) {
	outer, inner := new(zk.Conn), new(zk.Conn)
	var m *connection.Map[int]
	m = connection.NewMap(func(conn *zk.Conn) int {
		if conn == outer {
			return 1 + m.Of(inner)
		}
		return 1
	})
	require.Equal(t, 2, m.Of(outer))
	runtime.KeepAlive(outer)
	runtime.KeepAlive(inner)
}

// A value is dropped with its connection, and values of other connections stay.
func TestMap_DropsValuesOfUnreachableConnections(t *testing.T) {
	m := connection.NewMap(func(*zk.Conn) *[1 << 10]byte { return new([1 << 10]byte) })
	kept := new(zk.Conn)
	value := m.Of(kept)
	for range 1000 {
		m.Of(new(zk.Conn))
	}
	for m.Len() > 1 { // endless if a value keeps its connection in memory
		runtime.GC()
	}
	require.Same(t, value, m.Of(kept))
	require.Equal(t, 1, m.Len())
	runtime.KeepAlive(kept)
}
