package replica

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// race reports whether the race detector is enabled.
var race bool

var noon = time.UnixMilli(1_790_000_040_000) // a multiple of a minute

// idAt returns a random request ID with the given time in milliseconds.
func idAt(rng *rand.Rand, ms int64) api.RequestID {
	var id api.RequestID
	binary.BigEndian.PutUint64(id[:8], uint64(ms)<<16|rng.Uint64N(1<<16))
	binary.BigEndian.PutUint64(id[8:], rng.Uint64())
	return id
}

const hour = int64(3_600_000) // an hour in milliseconds

// distributions are ways to choose the times of n IDs at random.
var distributions = []struct {
	name  string
	id    func(rng *rand.Rand, i, n int) api.RequestID
	index func(i int) uint64
}{
	{"minute", func(rng *rand.Rand, i, n int) api.RequestID {
		return idAt(rng, noon.UnixMilli()+rng.Int64N(60_000))
	}, nil},
	{"millisecond", func(rng *rand.Rand, i, n int) api.RequestID {
		return idAt(rng, noon.UnixMilli())
	}, nil},
	{"7hInOrder", func(rng *rand.Rand, i, n int) api.RequestID {
		return idAt(rng, noon.UnixMilli()+7*hour*int64(i)/int64(n)+rng.Int64N(300))
	}, nil},
	{"7hAnyOrder", func(rng *rand.Rand, i, n int) api.RequestID {
		return idAt(rng, noon.UnixMilli()+rng.Int64N(7*hour))
	}, nil},
	{"7hBackwards", func(rng *rand.Rand, i, n int) api.RequestID {
		return idAt(rng, noon.UnixMilli()-7*hour*int64(i)/int64(n))
	}, nil},
	{"edges", func(rng *rand.Rand, i, n int) api.RequestID { // times around multiples of 2^16 ms
		return idAt(rng, noon.UnixMilli()&^(1<<16-1)+rng.Int64N(400)<<16-int64(i%2))
	}, nil},
	// A log does not have the following distributions, because IDs expire.
	{"allTimes", func(rng *rand.Rand, i, n int) api.RequestID {
		return idAt(rng, rng.Int64N(1<<48))
	}, nil},
	{"allTimesFarIndexes", func(rng *rand.Rand, i, n int) api.RequestID {
		return idAt(rng, rng.Int64N(1<<48))
	}, func(i int) uint64 { return 1<<40 + uint64(i)*4001 }},
}

// newTable returns a table of n IDs whose times have the given distribution.
func newTable(n, distribution int) *IDs {
	rng := rand.New(rand.NewPCG(1, uint64(distribution)))
	t, s := newIDs(), distributions[distribution]
	for i := range n {
		index := uint64(i + 1_000_000_000)
		if s.index != nil {
			index = s.index(i)
		}
		t.Insert(s.id(rng, i, n), index, rng.Uint32())
	}
	return t
}

// encodeView returns the bytes that the IDsView writes in WriteTo.
func encodeView(t testing.TB, v *IDsView) []byte {
	var b bytes.Buffer
	n, err := v.WriteTo(&b)
	require.NoError(t, err)
	require.EqualValues(t, b.Len(), n)
	return b.Bytes()
}

// newSmallTable returns a table of five IDs.
func newSmallTable() *IDs {
	table := newIDs()
	for i := range 5 {
		table.Insert(api.RequestIDFromObjectID([12]byte{4, byte(i * i), 11: byte(i)}), uint64(1000-i), uint32(i)<<29)
	}
	return table
}
