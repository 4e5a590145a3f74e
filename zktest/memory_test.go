package zktest_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestMemory_Znodes fails if znodes need too much memory.
func TestMemory_Znodes(t *testing.T) {
	if used := heapOf100k(t); used > 100e6 {
		t.Errorf("100,000 znodes take %d bytes", used)
	}
}

func heapOf100k(tb testing.TB) uint64 {
	s := zktest.Start(tb)
	c, _, err := s.Connect(30 * time.Second)
	if err != nil {
		tb.Fatal(err)
	}
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
		ops = append(ops, &zk.CreateRequest{Path: dir, Acl: open})
		for k := range 99 {
			ops = append(ops, &zk.CreateRequest{Path: fmt.Sprintf("%s/node-%06d", dir, k), Data: data, Acl: open})
		}
		if _, err := c.Multi(ops...); err != nil {
			tb.Fatal(err)
		}
	}
	used := heap() - before
	runtime.KeepAlive(s)
	return used
}

// TestMemory_ClosedClients fails if the server keeps clients that are closed: each has buffers of
// 1.6 MB.
func TestMemory_ClosedClients(t *testing.T) {
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
	// The goroutines of a closed client end a little later.
	for deadline := time.Now().Add(time.Minute); alive() > 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d closed clients are still referenced", alive(), len(refs))
		}
	}
	c, _ := connect(t, s, 10*time.Second)
	s.Close()
	if state := c.State(); state != zk.StateDisconnected {
		t.Errorf("the state of a client that was not closed is %v after Close", state)
	}
}

// BenchmarkMemory reports the memory of 100,000 znodes with 32 bytes of data each.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(float64(heapOf100k(b))/1e6, "MB/100k-znodes")
	}
}
