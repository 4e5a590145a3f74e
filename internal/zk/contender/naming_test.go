package contender

import (
	cryptorand "crypto/rand"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// guid returns a random GUID in the format of the names.
func guid() string {
	var random [16]byte
	_, _ = cryptorand.Read(random[:])
	return GUIDOf(random)
}

// TestSequence checks Sequence, which recognizes names of known libraries, and sequenceOfAny, which recognizes the
// names of all possible contenders.
func TestSequence(t *testing.T) {
	const guid = "597de0d1-c10b-4e1e-a9f7-3a88a1fa7c26"
	for name, want := range map[string]int32{
		"_c_" + guid + "-latch-0000000007": 7, "latch-0000000007": 7, "_c_" + guid + "-lock-2147483647": math.MaxInt32,
		"_c_597de0d1c10b4e1ea9f73a88a1fa7c26-lock-0000000003": 3, "597de0d1c10b4e1ea9f73a88a1fa7c26__lock__0000000003": 3,
		"597de0d1c10b4e1ea9f73a88a1fa7c26__lock__-2147483648": math.MinInt32, "_c_" + guid + "-latch--2147483648": math.MinInt32,
		"_c_" + guid + "-latch--000000001": -1, "le_0000000012": 12,
	} {
		for _, parse := range []func(string) (int32, bool){Sequence, sequenceOfAny} {
			sequence, ok := parse(name)
			require.True(t, ok, name)
			require.Equal(t, want, sequence, name)
		}
	}
	for name, want := range map[string]int32{
		"0000000001": 1, "-0000000001": 1, "00000000002": 2, "n_0000000003": 3, "node_0000000004": 4, "zkonce-0000000005": 5, "c_0000000006": 6,
		"_c_597de0d1c10b4e1ea9f73a88a1fa7c26-guid-n_0000000007": 7, "x-0000000008": 8, "clock-2147483647": math.MaxInt32,
		"vehicle_0000000001": 1, "x__qlock__0000000001": 1, "_c_" + guid + "-__REED__0000000001": 1,
	} {
		_, ok := Sequence(name)
		require.False(t, ok, name)
		sequence, ok := sequenceOfAny(name)
		require.True(t, ok, name)
		require.Equal(t, want, sequence, name)
	}
	for _, name := range []string{
		"", "-", "config", "DONE", "ABANDONED", "latch-", "latch-1", "latch-2147483648", "latch-000000000x", "latch-0000000001 ", "_c_", "_c_short-latch-",
		"n_", "n_000000001", "n_00000000x1", "limit-3-0000000001",
		HeldToWrite + "597de0d1c10b4e1ea9f7340000000001", HeldToRead + "597de0d1c10b4e1ea9f7340000000001",
	} {
		_, known := Sequence(name)
		_, ok := sequenceOfAny(name)
		require.False(t, known || ok, name)
	}
}

// TestNamePrefix_HasFormatOfLibrary checks that a generated prefix has the format of Curator or kazoo, is
// recognized as a prefix of this package, and does not occur twice.
func TestNamePrefix_HasFormatOfLibrary(t *testing.T) {
	curator := regexp.MustCompile(`^_c_[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}-latch-$`)
	kazoo := regexp.MustCompile(`^[0-9a-f]{32}__lock__$`)
	seen := map[string]bool{}
	for range 100 {
		guid := guid()
		require.False(t, seen[guid])
		seen[guid] = true
		require.Regexp(t, curator, CuratorLatch.NamePrefix(guid))
		require.Regexp(t, kazoo, Kazoo.NamePrefix(guid))
		for _, n := range []Naming{CuratorLatch, Kazoo} {
			require.True(t, IsOurs(n.NamePrefix(guid)+"0000000001"), n.NamePrefix(guid))
			_, ok := Sequence(n.NamePrefix(guid) + "0000000001")
			require.True(t, ok)
		}
	}
}

// TestGUID_InName checks that the GUID of a name is found, and that none is found in a name without a GUID.
func TestGUID_InName(t *testing.T) {
	const dashed, plain = "597de0d1-c10b-4e1e-a9f7-3a88a1fa7c26", "597de0d1c10b4e1ea9f73a88a1fa7c26"
	require.Equal(t, dashed, GUID("_c_"+dashed+"-__WRIT__0000000001"))
	require.Equal(t, dashed, GUID("_c_"+dashed+"-lock--2147483648"))
	require.Equal(t, plain, GUID(plain+"__rlock__0000000001"))
	require.Equal(t, "lock-0000000001", GUID("lock-0000000001"), "without a GUID")
}

// TestIsOurs_NamesOfOtherLibraries checks that the name of another library's contender is not taken for a
// name of this package.
func TestIsOurs_NamesOfOtherLibraries(t *testing.T) {
	for _, name := range []string{
		"_c_597de0d1-c10b-4e1e-a9f7-3a88a1fa7c26-latch-0000000001",
		"_c_597de0d1c10b8e1ea9f73a88a1fa7c26-lock-0000000001", // zk.Lock, which happens to contain the mark
		"597de0d1c10b4e1ea9f73a88a1fa7c26__lock__0000000001",
		"latch-0000000001", "le_0000000001", "", "_c_",
	} {
		require.False(t, IsOurs(name), name)
	}
}

// TestReads_ShownByName checks that a name shows whether its contender reads or writes.
func TestReads_ShownByName(t *testing.T) {
	for name, want := range map[string]bool{
		CuratorRead.NamePrefix(guid()) + "0000000001": true, KazooRead.NamePrefix(guid()) + "-2147483648": true, "__READ__0000000001": true,
		CuratorWrite.NamePrefix(guid()) + "0000000001": false, Kazoo.NamePrefix(guid()) + "0000000001": false, "lock-0000000001": false, "": false,
	} {
		require.Equal(t, want, Reads(name), name)
	}
}

// TestNaming_CheckRejectsInvalid checks that Check accepts exactly the namings that are valid for an election.
func TestNaming_CheckRejectsInvalid(t *testing.T) {
	for _, n := range []Naming{CuratorLatch, Kazoo, Prefix(""), Prefix("n_"), ProtectedPrefix("n_")} {
		require.NoError(t, n.Check(), n)
	}
	for _, n := range []Naming{"other", CuratorLock, Prefix("a/b"), ProtectedPrefix("a/b"), Prefix("limit-3-"), Prefix(HeldToWrite)} {
		require.Error(t, n.Check(), n)
	}
}

// The numbers of an exhausted counter are accepted in the names of other contenders, but not in the contender's
// own name. A prefix may end like the sign of a number, may follow a GUID, and is not known to Sequence.
func TestIsExhausted(t *testing.T) {
	for number, want := range map[string]bool{
		"0000000001": false, "2147483646": false, "2147483647": true, "-000000005": true, "-2147483648": true, "-2147483600": true,
	} {
		for _, n := range []Naming{
			CuratorLatch, Kazoo, Prefix("n"), Prefix("n-"), ProtectedPrefix("n_"), ProtectedPrefix("guid-n_"), ProtectedPrefix("n-"),
			ProtectedPrefix("lock-"), ProtectedPrefix(""),
		} {
			name := n.NamePrefix(guid()) + number
			require.Equal(t, want, n.isExhausted(name), name)
		}
	}
}

const tombstone = "DONE"

func latch(sequence int32) string {
	return fmt.Sprintf("%s%010d", CuratorLatch.NamePrefix(guid()), sequence)
}

// TestOrder_ByNumber checks that contenders of several libraries are in the order of their numbers, and that other
// children are not taken for contenders.
func TestOrder_ByNumber(t *testing.T) {
	a, b, c := latch(9), fmt.Sprintf("%032x__lock__%010d", 1, 10), "le_0000000011"
	contenders, foreign, ended := Order([]string{"config", c, tombstone, b, "ABANDONED", a}, tombstone)
	require.Equal(t, []string{a, b, c}, contenders)
	require.ElementsMatch(t, []string{"config", "ABANDONED"}, foreign)
	require.True(t, ended)

	contenders, foreign, ended = Order(nil, tombstone)
	require.Empty(t, contenders)
	require.Empty(t, foreign)
	require.False(t, ended)
}

// The counter overflows from 2147483647 to -2147483648. Contenders that are created after the
// overflow come later, although their names and numbers are smaller.
func TestOrder_AcrossTheOverflow(t *testing.T) {
	var want []string
	for i := range 20 {
		want = append(want, latch(math.MaxInt32-9+int32(i)))
	}
	shuffled := append([]string(nil), want...)
	rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	got, _, _ := Order(shuffled, tombstone)
	require.Equal(t, want, got)
	for i, own := range want {
		require.Equal(t, expected(want, i), withZnode(own, Config{Tombstone: tombstone}).neighborsIn(shuffled))
	}
}

// withZnode returns a contender with this znode.
func withZnode(name string, cfg Config) *Contender {
	c := New(&cfg)
	c.znode.name = name
	return c
}

// expected returns the neighbors that neighborsIn must find for the i-th of ordered if it recognizes all names.
func expected(ordered []string, i int) neighbors {
	n := neighbors{present: true, blocking: i}
	if i > 0 {
		n.predecessor = ordered[i-1]
	}
	if i > 1 {
		n.before = ordered[i-2]
	}
	return n
}

// TestNeighborsIn_FindsPredecessor checks that a contender finds the right predecessor, and does not count
// its orphans, ignored children or the tombstone as contenders.
func TestNeighborsIn_FindsPredecessor(t *testing.T) {
	first, second, third, own, last := latch(1), latch(3), latch(4), latch(7), latch(8)
	prefix := CuratorLatch.NamePrefix(guid())
	orphan := prefix + "0000000005"
	ours := withZnode(own, Config{Tombstone: tombstone})
	ours.creates.prefixes = []string{prefix, "other-"}

	n := ours.neighborsIn([]string{last, "config", own, orphan, third, first, second})
	require.Equal(t, neighbors{present: true, predecessor: third, before: second, blocking: 3, orphans: []string{orphan}}, n)

	n = ours.neighborsIn([]string{own, orphan, first})
	require.Equal(t, neighbors{present: true, predecessor: first, blocking: 1, orphans: []string{orphan}}, n, "an orphan of the contender does not count")

	n = withZnode(own, Config{Tombstone: tombstone}).neighborsIn([]string{"0", tombstone})
	require.Equal(t, neighbors{ended: true}, n)

	ignoring := withZnode(own, Config{})
	ignoring.queue.ignored = []string{second}
	n = ignoring.neighborsIn([]string{first, second, own})
	require.Equal(t, neighbors{present: true, predecessor: first, blocking: 1}, n)

	n = withZnode(own, Config{Policy: Policy{Blocks: func(name string) bool { return name != third }}}).neighborsIn([]string{third, first, own, second})
	require.Equal(t, neighbors{present: true, predecessor: second, before: first, blocking: 2}, n)

	twin := latch(7)
	n = withZnode(own, Config{}).neighborsIn([]string{twin, own})
	require.Equal(t, []string{twin}, n.twins)
}

// TestUnverified_UnrecognizedNames checks that the right children are inspected: those after the last
// contender with a recognized name, except for ignored children and the contender's own znodes.
func TestUnverified_UnrecognizedNames(t *testing.T) {
	own, prefix := latch(9), "own-latch-"
	c := withZnode(own, Config{})
	c.creates.prefixes, c.queue.ignored = []string{prefix, "other-"}, []string{"n_0000000006"}
	got := c.unverified("n_0000000008", []string{
		"n_0000000001", latch(2), "n_0000000003", prefix + "0000000004", "n_0000000005", "n_0000000006", own,
		"n_0000000007", "n_0000000008", "n_0000000009", "n_0000000010", "config",
	})
	require.Equal(t, []string{"n_0000000008", "n_0000000007", "n_0000000005", "n_0000000003"}, got)

	// If two znodes have the number of the predecessor, the predecessor comes first.
	got = c.unverified("a_0000000008", []string{"a_0000000008", "b_0000000008", own})
	require.Equal(t, []string{"a_0000000008", "b_0000000008"}, got)

	c.cfg.Blocks = func(name string) bool { return name != "n_0000000002" }
	got = c.unverified("n_0000000003", []string{"n_0000000001", "n_0000000002", "n_0000000003", own})
	require.Equal(t, []string{"n_0000000003", "n_0000000001"}, got)
}

// FuzzOrder orders arbitrary names of children. All children but the tombstone are in the result once, and
// the neighbors of each contender, with names without a twin, follow from the order.
func FuzzOrder(f *testing.F) {
	f.Add("_c_597de0d1-c10b-4e1e-a9f7-3a88a1fa7c26-latch-0000000007\nn_0000000003\nDONE\nx", 1)
	f.Add("a-2147483647\nb--2147483648\nc-0000000000", 0)
	f.Fuzz(func(t *testing.T, text string, i int) {
		children := strings.Split(text, "\n")
		slices.Sort(children)
		children = slices.Compact(children)
		contenders, others, ended := Order(children, "DONE")
		all := slices.Concat(contenders, others)
		if ended {
			all = append(all, "DONE")
		}
		slices.Sort(all)
		require.Equal(t, children, all)
		for _, name := range children {
			require.True(t, !IsOurs(name) || strings.Contains(name, mark), name)
		}
		if len(contenders) == 0 {
			return
		}
		own := contenders[uint(i)%uint(len(contenders))]
		n := withZnode(own, Config{Tombstone: "DONE"}).neighborsIn(children)
		require.True(t, n.present)
		require.Equal(t, ended, n.ended)
		sequence, _ := sequenceOfAny(own)
		before := 0
		for _, name := range contenders {
			if other, _ := sequenceOfAny(name); IsBefore(other, sequence) {
				before++
			}
		}
		require.Equal(t, before, n.blocking)
		require.Equal(t, before == 0, n.predecessor == "")
	})
}

// FuzzLimit parses arbitrary names of znodes with the limit of a semaphore, and counts.
func FuzzLimit(f *testing.F) {
	f.Add("limit-3-0000000001")
	f.Add("limit-999999999--000000001")
	f.Add("3")
	f.Fuzz(func(t *testing.T, name string) {
		if limit, _, ok := ParseLimit(name); ok {
			require.True(t, strings.HasPrefix(name, LimitPrefix+strconv.Itoa(limit)+"-"))
			require.True(t, limit >= 1 && limit <= MaxCount)
		}
		if n, ok := ParseCount(name); ok {
			require.Equal(t, name, strconv.Itoa(n))
			require.True(t, n >= 1 && n <= MaxCount)
		}
	})
}
