package filelog

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
)

// The benchmarks of this file write to the disk of the directory TMPDIR.

// BenchmarkAppend measures appending a batch with a sync. As a baseline, it measures writing the same
// number of bytes to an allocated file.
func BenchmarkAppend(b *testing.B) {
	for _, n := range []uint64{1, 20, 1024} {
		batch := func(i uint64) Batch {
			return Batch{HardState: stateMessage(1, 1, i*n), Entries: newEntries(i*n+1, n, 1, 256), Sync: true}
		}
		size := headSize + batchLength(hardStateOf(stateMessage(1, 1, 1)), batch(0).Entries)
		b.Run(fmt.Sprintf("log/entries=%d", n), func(b *testing.B) {
			l, err := Open(disk.OS(b.TempDir()), "log", Options{})
			require.NoError(b, err)
			defer l.Close()
			b.SetBytes(size)
			b.ReportAllocs()
			i := uint64(0)
			for b.Loop() {
				b.StopTimer()
				next := batch(i)
				b.StartTimer()
				if err := l.Append(next); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
		b.Run(fmt.Sprintf("file/entries=%d", n), func(b *testing.B) {
			f, err := disk.OS(b.TempDir()).Create("f")
			require.NoError(b, err)
			defer f.Close()
			require.NoError(b, f.Allocate(defaultSize))
			require.NoError(b, f.Sync())
			buf := make([]byte, size)
			b.SetBytes(size)
			offset := int64(0)
			for b.Loop() {
				b.StopTimer()
				batch(1) // do the same work outside of the measured time as the benchmark of the log
				b.StartTimer()
				if offset+size > defaultSize {
					b.StopTimer()
					require.NoError(b, f.Truncate(0))
					require.NoError(b, f.Allocate(defaultSize))
					require.NoError(b, f.Sync())
					b.StartTimer()
					offset = 0
				}
				if _, err := f.WriteAt(buf, offset); err != nil {
					b.Fatal(err)
				}
				if err := f.Sync(); err != nil {
					b.Fatal(err)
				}
				offset += alignUp(size)
			}
		})
	}
}

// BenchmarkOpen measures opening a log of 1 GB: 4 million entries of 256 bytes.
func BenchmarkOpen(b *testing.B) {
	d := disk.OS(b.TempDir())
	l, err := Open(d, "log", Options{CacheSize: -1})
	require.NoError(b, err)
	const all, batch = 4_000_000, 1000
	for i := uint64(0); i < all; i += batch {
		require.NoError(b, l.Append(Batch{Entries: newEntries(i+1, batch, 1+i/1_000_000, 256)}))
	}
	require.NoError(b, l.Close())
	var heap float64
	for b.Loop() {
		l, err := Open(d, "log", Options{})
		require.NoError(b, err)
		b.StopTimer()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		heap = float64(m.HeapAlloc) / 1e6
		last, _ := l.LastIndex()
		require.EqualValues(b, all, last)
		require.NoError(b, l.Close())
		b.StartTimer()
	}
	b.ReportMetric(heap, "MB-heap")
}

// BenchmarkEntries measures reading entries of one MiB from the disk, and from the cache.
func BenchmarkEntries(b *testing.B) {
	for _, cache := range []int64{-1, defaultSize} {
		b.Run(fmt.Sprintf("cache=%d", max(cache, 0)), func(b *testing.B) {
			l, err := Open(disk.OS(b.TempDir()), "log", Options{CacheSize: cache})
			require.NoError(b, err)
			defer l.Close()
			for i := uint64(0); i < 100_000; i += 20 {
				require.NoError(b, l.Append(Batch{Entries: newEntries(i+1, 20, 1, 256)}))
			}
			b.ReportAllocs()
			var got []*raftpb.Entry
			for b.Loop() {
				if got, err = l.Entries(50_000, 60_000, 1<<20); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(got)), "entries")
		})
	}
}
