package replica

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// model is a table of IDs that is implemented by a map.
type model map[api.RequestID]idEntry

func (m model) insert(e idEntry) {
	if _, known := m[e.id]; !known {
		m[e.id] = e
	}
}

func (m model) expire(before time.Time) {
	maps.DeleteFunc(m, func(id api.RequestID, _ idEntry) bool { return id.Time().Before(before) })
}

func (m model) oldest() (uint64, bool) {
	oldest := uint64(math.MaxUint64)
	for _, e := range m {
		oldest = min(oldest, e.index)
	}
	return oldest, len(m) > 0
}

// requireEqual requires that the table and the model have equal contents, and that the table satisfies its
// invariants.
func (m model) requireEqual(t *testing.T, table *IDs) {
	t.Helper()
	require.Equal(t, len(m), table.Len())
	oldest, ok := table.OldestIndex()
	want, wantOK := m.oldest()
	require.Equal(t, wantOK, ok)
	if ok {
		require.Equal(t, want, oldest)
	}
	for id, e := range m {
		if index, sum, ok := table.Lookup(id); !ok || e != (idEntry{id, index, sum}) {
			t.Fatalf("%v: want %v, have %v, %v, %v", id, e, index, sum, ok)
		}
	}
	requireInvariants(t, table)
}

// requireInvariants requires that a table satisfies the invariants in the comments of its types.
func requireInvariants(t *testing.T, table *IDs) {
	t.Helper()
	var last api.RequestID
	count := 0
	check := func(ok bool, property string) {
		if !ok {
			t.Helper()
			t.Fatalf("after %d entries: %s", count, property)
		}
	}
	for _, b := range table.buckets {
		check(b.len() > 0 && b.len() <= maxEntries && len(b.data) == b.len()*b.entrySize(), "size of a bucket")
		check(count == 0 || bytes.Compare(last[:], b.First[:]) < 0, "order of buckets")
		oldest := uint64(math.MaxUint64)
		for i := range b.len() {
			e := b.entry(i)
			check(count == 0 || bytes.Compare(last[:], e.id[:]) < 0, "order of entries")
			check(bytes.Compare(b.First[:], e.id[:]) <= 0, "first ID of a bucket")
			oldest = min(oldest, e.index)
			last = e.id
			count++
		}
		check(oldest == b.oldest, "oldest index of a bucket")
	}
	check(len(table.recent) < maxRecent, "number of recent entries")
	for i, e := range table.recent {
		check(i == 0 || bytes.Compare(table.recent[i-1].id[:], e.id[:]) < 0, "order of recent entries")
		if len(table.buckets) > 0 {
			_, found := table.buckets[table.bucketOf(e.id)].search(e.id)
			check(!found, "recent ID in a bucket")
		}
		count++
	}
	check(count == table.Len(), "number of IDs")
}

// TestIDs_MatchMapAfterRandomCalls checks that a table equals a map after random calls, some of which insert an ID
// again, and that the encoding of the table does not depend on the order of the calls.
func TestIDs_MatchMapAfterRandomCalls(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(2, seed))
			table, m := newIDs(), model{}
			m.requireEqual(t, table)
			now, index := noon.UnixMilli(), rng.Uint64N(1<<40)
			var inserted []api.RequestID
			insert := func(ms int64) {
				id := idAt(rng, ms)
				if len(inserted) > 0 && rng.IntN(20) == 0 {
					id = inserted[rng.IntN(len(inserted))]
				}
				inserted = append(inserted, id)
				e := idEntry{id, index, rng.Uint32()}
				table.Insert(e.id, e.index, e.sum)
				m.insert(e)
				if index += rng.Uint64N(4); rng.IntN(2000) == 0 {
					index += rng.Uint64N(1 << 50)
				}
			}
			for range 60 {
				switch kind, n := rng.IntN(9), rng.IntN(1200); kind {
				case 0, 1, 2:
					for range n {
						now += rng.Int64N(20)
						insert(now - rng.Int64N(500))
					}
				case 3:
					for range n {
						insert(now - rng.Int64N(7*hour))
					}
				case 4:
					for range n / 2 {
						insert(rng.Int64N(1 << 48))
					}
				case 5:
					for range n {
						insert(now &^ 0xffff)
					}
				case 6:
					limit := time.UnixMilli(now - rng.Int64N(2*hour)).Add(time.Duration(rng.Int64N(1e6)))
					if len(inserted) > 0 && rng.IntN(8) == 0 {
						limit = inserted[rng.IntN(len(inserted))].Time()
					}
					table.Expire(limit)
					m.expire(limit)
				case 7:
					read, err := readIDs(bytes.NewReader(encodeView(t, table.Snapshot())))
					require.NoError(t, err)
					require.Equal(t, table.Sum(), read.Sum())
					table = read
				case 8:
					table.Snapshot()
				}
			}
			m.requireEqual(t, table)
			for _, id := range inserted {
				_, _, ok := table.Lookup(id)
				if _, want := m[id]; want != ok {
					t.Fatalf("%v is in the table: %v, want %v", id, ok, want)
				}
			}
			// A table to which the same IDs were added in another order has the same content.
			other := newIDs()
			for _, e := range m { // a map returns its elements in random order
				other.Insert(e.id, e.index, e.sum)
			}
			require.Equal(t, table.Sum(), other.Sum())
			require.Equal(t, encodeView(t, table.Snapshot()), encodeView(t, other.Snapshot()))
			m.requireEqual(t, other)
		})
	}
}

// middleID returns an ID of the view's bucket in the middle.
func middleID(v *IDsView) api.RequestID {
	b := v.buckets[len(v.buckets)/2]
	return b.id(b.len() / 2)
}

// TestIDs_ExpireRemovesOnlyOlderIDs checks that Expire removes the IDs before a time from many buckets, keeps all
// other IDs, and does not change an IDsView.
func TestIDs_ExpireRemovesOnlyOlderIDs(t *testing.T) {
	for i, s := range distributions {
		if race && i%4 > 0 {
			continue // skip the large tables, because the race detector is slow
		}
		table := newTable(20_000, i)
		requireInvariants(t, table)
		view := table.Snapshot()
		sum := view.Sum()
		for table.Len() > 0 {
			left := table.Snapshot()
			limit := middleID(left).Time().Add(time.Millisecond)
			table.Expire(limit)
			requireInvariants(t, table)
			for _, b := range left.buckets {
				for i := range b.len() {
					e := b.entry(i)
					if _, _, found := table.Lookup(e.id); found == e.id.Time().Before(limit) {
						t.Fatalf("%s: ID of %v is in the table: %v, limit %v", s.name, e.id.Time(), found, limit)
					}
				}
			}
		}
		require.Equal(t, sum, view.Sum(), s.name)
		require.Equal(t, 20_000, view.Len())
		table.Insert(api.RequestID{1}, 7, 8)
		requireInvariants(t, table)
	}
}

// TestIDs_ExpireKeepsIDsAtLimit checks that Expire keeps an ID whose time is the given time, and removes an ID that
// is a millisecond older.
func TestIDs_ExpireKeepsIDsAtLimit(t *testing.T) {
	first, last := api.RequestIDAt(time.UnixMilli(0)), api.RequestIDAt(time.UnixMilli(1<<48-1))
	for _, c := range []struct {
		before time.Time
		left   int
	}{
		{time.Time{}, 4},
		{time.Unix(math.MinInt64/2, 0), 4},
		{time.UnixMilli(0), 4},
		{time.Unix(0, 1), 3},
		{noon, 3},
		{noon.Add(time.Nanosecond), 2},
		{noon.Add(time.Millisecond), 2},
		{noon.Add(time.Millisecond + 1), 1},
		{time.UnixMilli(1<<48 - 1), 1},
		{time.UnixMilli(1<<48 - 1).Add(1), 0},
		{time.UnixMilli(1 << 48), 0},
		{time.Unix(math.MaxInt64/2, 0), 0},
	} {
		for _, sealed := range []bool{false, true} {
			table := newIDs()
			for i, id := range []api.RequestID{last, api.RequestIDAt(noon.Add(time.Millisecond)), api.RequestIDAt(noon), first} {
				table.Insert(id, uint64(i), 0)
			}
			if sealed {
				table.sealEntries(len(table.recent))
			}
			table.Expire(c.before)
			require.Equal(t, c.left, table.Len(), "%v", c.before)
			requireInvariants(t, table)
			if c.left > 0 {
				oldest, ok := table.OldestIndex()
				require.True(t, ok)
				require.Zero(t, oldest)
			}
		}
	}
}

// TestIDs_SumDiffersForDifferentTables checks that tables with different contents have different sums, and that the
// order of insertion does not change the sum.
func TestIDs_SumDiffersForDifferentTables(t *testing.T) {
	sum := func(entries ...idEntry) uint64 {
		table := newIDs()
		for _, e := range entries {
			table.Insert(e.id, e.index, e.sum)
		}
		return table.Sum()
	}
	a, b := idEntry{api.RequestID{1}, 2, 3}, idEntry{api.RequestID{2}, 2, 3}
	sums := map[uint64]bool{}
	for _, s := range []uint64{
		sum(), sum(a), sum(b), sum(a, b),
		sum(idEntry{a.id, 3, 3}), sum(idEntry{a.id, 2, 4}), sum(idEntry{a.id, 2, 3 << 8}), sum(idEntry{}),
	} {
		sums[s] = true
	}
	require.Len(t, sums, 8)
	require.Equal(t, sum(a, b), sum(b, a))
}

// TestIDsView_DoesNotChangeWithTable checks that changes of a table do not change its IDsView. With the race
// detector, it also checks that the table does not write to memory that it shares with an IDsView.
func TestIDsView_DoesNotChangeWithTable(t *testing.T) {
	for i, s := range distributions {
		table := newTable(20_000, i)
		rng := rand.New(rand.NewPCG(3, uint64(i)))
		view, want := table.Snapshot(), table.Sum()
		var wait sync.WaitGroup
		wait.Go(func() {
			for range 3 {
				if got := view.Sum(); got != want {
					t.Errorf("%s: the view has changed", s.name)
				}
			}
		})
		for k := range 20_000 {
			table.Insert(s.id(rng, k, 20_000), uint64(2_000_000_000+k), 1)
			if k%5000 == 0 {
				table.Snapshot()
			}
		}
		table.Expire(middleID(view).Time())
		wait.Wait()
		require.Equal(t, want, view.Sum(), s.name)
		read, err := readIDs(bytes.NewReader(encodeView(t, view)))
		require.NoError(t, err)
		require.Equal(t, want, read.Sum())
		require.Equal(t, 20_000, read.Len())
	}
}

// measureHeap returns the number of allocated bytes so far, and the bytes of the heap in use, after a
// garbage collection.
func measureHeap() (alloc, inuse uint64) {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.HeapInuse
}

// TestIDs_UseLittleMemory checks that a table uses at most 25 bytes per ID.
func TestIDs_UseLittleMemory(t *testing.T) {
	if race {
		t.Skip("one goroutine, and slow with the race detector")
	}
	for i, s := range distributions {
		const n = 200_000
		alloc, inuse := measureHeap()
		table := newTable(n, i)
		alloc2, inuse2 := measureHeap()
		require.Equal(t, n, table.Len())
		perID := float64(alloc2-alloc) / float64(n)
		t.Logf("%-20s %.1f bytes per ID (%.1f with unused memory of the heap)", s.name, perID, float64(int64(inuse2-inuse))/float64(n))
		limit := 25.0
		if s.index != nil { // this distribution has indexes of 5 bytes
			limit = 26
		}
		require.Less(t, perID, limit, s.name)
	}
}
