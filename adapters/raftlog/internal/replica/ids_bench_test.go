package replica

import (
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

const million = 1_000_000

func BenchmarkInsert(b *testing.B) {
	for i, s := range distributions {
		b.Run(s.name, func(b *testing.B) {
			table, rng := newTable(million, i), rand.New(rand.NewPCG(4, 4))
			more := make([]api.RequestID, 200_000)
			for k := range more {
				more[k] = s.id(rng, million+k, million)
			}
			b.ReportAllocs()
			for k := 0; b.Loop(); k++ {
				table.Insert(more[k%len(more)], uint64(2_000_000_000+k), 1)
			}
		})
	}
}

// BenchmarkApply measures State.Apply with updates that 50 clients make in each millisecond. Each
// update arrives up to 5 ms after its ID was created.
func BenchmarkApply(b *testing.B) {
	rng, data := rand.New(rand.NewPCG(5, 5)), make([]byte, 256)
	entries := make([]*raftpb.Entry, 50_000)
	for i := range entries {
		at := noon.Add(time.Duration(i) * 20 * time.Microsecond)
		id := idAt(rng, at.Add(-time.Duration(rng.IntN(5000))*time.Microsecond).UnixMilli())
		h := Header{Kind: api.KindState, ID: id, Time: at, Sum: Sum(data)}
		entries[i] = &raftpb.Entry{Type: raftpb.EntryNormal.Enum(), Term: new(uint64(1)), Index: new(uint64(i + 2)), Data: EncodeEntry(h, data)}
	}
	var s *State
	b.ReportAllocs()
	for k := 0; b.Loop(); k++ {
		if k%len(entries) == 0 {
			s = New(nil, 7*time.Hour, time.Second)
		}
		if _, err := s.Apply(entries[k%len(entries)]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	for i, s := range distributions {
		b.Run(s.name, func(b *testing.B) {
			table, rng := newTable(million, i), rand.New(rand.NewPCG(1, uint64(i)))
			known := make([]api.RequestID, 100_000) // the IDs in the table
			for k := range known {
				known[k] = s.id(rng, k, million)
				rng.Uint32()
			}
			for k := 0; b.Loop(); k++ {
				if _, _, ok := table.Lookup(known[k%len(known)]); !ok {
					b.Fatal("unknown ID")
				}
			}
		})
	}
}

// BenchmarkExpireMinute measures removing the 2,381 IDs of a minute from a table of a million IDs of 7
// hours.
func BenchmarkExpireMinute(b *testing.B) {
	table, minute := newIDs(), 0
	for b.Loop() {
		if table.Len() == 0 {
			b.StopTimer()
			table, minute = newTable(million, 2), 0
			b.StartTimer()
		}
		minute++
		table.Expire(noon.Add(time.Duration(minute) * time.Minute))
	}
}

func BenchmarkSnapshot(b *testing.B) {
	table := newTable(million, 2)
	for b.Loop() {
		table.Snapshot()
	}
}

func BenchmarkWriteTo(b *testing.B) {
	view := newTable(million, 2).Snapshot()
	n := int64(0)
	for b.Loop() {
		n, _ = view.WriteTo(io.Discard)
	}
	b.ReportMetric(float64(n)/million, "bytes/ID")
}

func BenchmarkSum(b *testing.B) {
	table := newTable(million, 2)
	for b.Loop() {
		table.Sum()
	}
}
