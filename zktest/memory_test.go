package zktest_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestMemory_ZnodeNeedsLessThanKilobyte checks that 100,000 small znodes need less than 100 MB.
func TestMemory_ZnodeNeedsLessThanKilobyte(t *testing.T) {
	assert.Less(t, heapOf100kZnodes(t), uint64(100e6))
}

func heapOf100kZnodes(tb testing.TB) uint64 {
	s := zktest.Start(tb)
	c, _, err := s.Connect(30 * time.Second)
	require.NoError(tb, err)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	data := make([]byte, 32)
	for i := range 1000 {
		ops := make([]any, 0, 101)
		dir := fmt.Sprintf("/dir-%04d", i)
		ops = append(ops, &zk.CreateRequest{Path: dir, Acl: openACL})
		for k := range 99 {
			ops = append(ops, &zk.CreateRequest{Path: fmt.Sprintf("%s/node-%06d", dir, k), Data: data, Acl: openACL})
		}
		_, err = c.Multi(ops...)
		require.NoError(tb, err)
	}
	used := heap() - before
	runtime.KeepAlive(s)
	return used
}

// TestMemory_ServerKeepsNoClosedClients checks that the server keeps no reference to a closed client, because each
// client has buffers of 1.6 MB.
func TestMemory_ServerKeepsNoClosedClients(t *testing.T) {
	s := zktest.Start(t)
	var refs []weak.Pointer[zk.Conn]
	for range 100 {
		c, _ := connect(t, s, 10*time.Second)
		refs = append(refs, weak.Make(c))
		c.Close()
	}
	alive := func() (n int) {
		runtime.GC()
		for _, r := range refs {
			if r.Value() != nil {
				n++
			}
		}
		return n
	}
	// Wait, because the goroutines of a closed client end a little later.
	for deadline := time.Now().Add(time.Minute); alive() > 1; time.Sleep(10 * time.Millisecond) {
		require.False(t, time.Now().After(deadline), "%d of %d closed clients are still referenced", alive(), len(refs))
	}
	c, _ := connect(t, s, 10*time.Second)
	s.Close()
	assert.Equal(t, zk.StateDisconnected, c.State(), "the state of a client that was not closed is after Close")
}

// BenchmarkMemory reports the memory of 100,000 znodes with 32 bytes of data each.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(float64(heapOf100kZnodes(b))/1e6, "MB/100k-znodes")
	}
}
