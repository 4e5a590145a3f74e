package contender

import (
	"crypto/rand"
	"math"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// guid returns a new GUID.
func guid() string {
	var random [16]byte
	_, _ = rand.Read(random[:])
	return GUIDOf(random)
}

// The first number is that of names of known libraries, the second that of all names of contenders.
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

func TestNamePrefix(t *testing.T) {
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

func TestGUID(t *testing.T) {
	const dashed, plain = "597de0d1-c10b-4e1e-a9f7-3a88a1fa7c26", "597de0d1c10b4e1ea9f73a88a1fa7c26"
	require.Equal(t, dashed, GUID("_c_"+dashed+"-__WRIT__0000000001"))
	require.Equal(t, dashed, GUID("_c_"+dashed+"-lock--2147483648"))
	require.Equal(t, plain, GUID(plain+"__rlock__0000000001"))
	require.Equal(t, "lock-0000000001", GUID("lock-0000000001"), "without a GUID")
}

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

func TestReads(t *testing.T) {
	for name, want := range map[string]bool{
		CuratorRead.NamePrefix(guid()) + "0000000001": true, KazooRead.NamePrefix(guid()) + "-2147483648": true, "__READ__0000000001": true,
		CuratorWrite.NamePrefix(guid()) + "0000000001": false, Kazoo.NamePrefix(guid()) + "0000000001": false, "lock-0000000001": false, "": false,
	} {
		require.Equal(t, want, Reads(name), name)
	}
}

func TestCheck(t *testing.T) {
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
