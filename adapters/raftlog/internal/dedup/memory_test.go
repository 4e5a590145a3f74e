package dedup

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

var noon = time.UnixMilli(1_790_000_040_000) // a whole minute

// idAt returns an ID of that time, by rng.
func idAt(rng *rand.Rand, ms int64) requestid.ID {
	var id requestid.ID
	binary.BigEndian.PutUint64(id[:8], uint64(ms)<<16|rng.Uint64N(1<<16))
	binary.BigEndian.PutUint64(id[8:], rng.Uint64())
	return id
}

const hour = int64(3_600_000) // ms

// spreads are the ways in which the times of n IDs may lie.
var spreads = []struct {
	name  string
	id    func(rng *rand.Rand, i, n int) requestid.ID
	index func(i int) uint64
}{
	{"minute", func(rng *rand.Rand, i, n int) requestid.ID {
		return idAt(rng, noon.UnixMilli()+rng.Int64N(60_000))
	}, nil},
	{"millisecond", func(rng *rand.Rand, i, n int) requestid.ID {
		return idAt(rng, noon.UnixMilli())
	}, nil},
	{"7hInOrder", func(rng *rand.Rand, i, n int) requestid.ID {
		return idAt(rng, noon.UnixMilli()+7*hour*int64(i)/int64(n)+rng.Int64N(300))
	}, nil},
	{"7hAnyOrder", func(rng *rand.Rand, i, n int) requestid.ID {
		return idAt(rng, noon.UnixMilli()+rng.Int64N(7*hour))
	}, nil},
	{"7hBackwards", func(rng *rand.Rand, i, n int) requestid.ID {
		return idAt(rng, noon.UnixMilli()-7*hour*int64(i)/int64(n))
	}, nil},
	{"edges", func(rng *rand.Rand, i, n int) requestid.ID { // of what shares its first bytes
		return idAt(rng, noon.UnixMilli()&^(1<<16-1)+rng.Int64N(400)<<16-int64(i%2))
	}, nil},
	// No log has these while IDs are fresh.
	{"allTimes", func(rng *rand.Rand, i, n int) requestid.ID {
		return idAt(rng, rng.Int64N(1<<48))
	}, nil},
	{"allTimesFarIndexes", func(rng *rand.Rand, i, n int) requestid.ID {
		return idAt(rng, rng.Int64N(1<<48))
	}, func(i int) uint64 { return 1<<40 + uint64(i)*4001 }},
}

func fill(n int, spread int) *Table {
	rng := rand.New(rand.NewPCG(1, uint64(spread)))
	t, s := New(), spreads[spread]
	for i := range n {
		index := uint64(i + 1_000_000_000)
		if s.index != nil {
			index = s.index(i)
		}
		t.Insert(s.id(rng, i, n), index, rng.Uint32())
	}
	return t
}

func heap() (alloc, inuse uint64) {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.HeapInuse
}

var race bool // the race detector is on

func TestMemory(t *testing.T) {
	if race {
		t.Skip("nothing to see for the race detector, and slow under it")
	}
	for i, s := range spreads {
		n := 1_000_000
		if i%2 > 0 {
			n = 200_000
		}
		alloc, inuse := heap()
		table := fill(n, i)
		alloc2, inuse2 := heap()
		require.Equal(t, n, table.Len())
		perID := float64(alloc2-alloc) / float64(n)
		t.Logf("%-20s %.1f bytes an ID (%.1f with what the heap cannot use)", s.name, perID, float64(int64(inuse2-inuse))/float64(n))
		limit := 25.0
		if s.index != nil { // 4,000,000,000 entries
			limit = 26
		}
		require.Less(t, perID, limit, s.name)
	}
}
