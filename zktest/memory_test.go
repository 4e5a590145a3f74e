package zktest_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

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

// BenchmarkMemory reports the memory of 100,000 znodes with 32 bytes of data each.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(float64(heapOf100k(b))/1e6, "MB/100k-znodes")
	}
}
