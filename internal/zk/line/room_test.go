package line

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// lease is the name of a contender's znode.
func lease(weight int, sequence int32) string {
	p := &place{Config: &Config{Naming: CuratorLease, Room: &Room{Weight: weight}}}
	return fmt.Sprintf("%s%010d", p.prefix(), sequence)
}

func limitName(n int, sequence int32) string { return fmt.Sprintf("%s%010d", LimitPrefix(n), sequence) }

func TestLeaseNames(t *testing.T) {
	require.Regexp(t, regexp.MustCompile(`^_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-lease-0000000007$`), lease(1, 7))
	require.Regexp(t, regexp.MustCompile(`^_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-x12-lease-0000000007$`), lease(12, 7))
	for _, weight := range []int{1, 2, 17, MaxWeight} {
		for _, sequence := range []int32{0, 7, math.MaxInt32, math.MinInt32, -1} {
			name := lease(weight, sequence)
			require.Equal(t, weight, weightOf(name), name)
			read, ok := sequenceOf(name)
			require.True(t, ok, name)
			require.Equal(t, sequence, read, name)
			require.True(t, ours(name), name)
		}
	}
	p := &place{Config: &Config{Naming: KazooLease, Room: &Room{Weight: 1}}}
	require.Regexp(t, regexp.MustCompile(`^[0-9a-f]{32}$`), p.prefix())
}

// Whose name says nothing takes one.
func TestForeignWeights(t *testing.T) {
	for _, name := range []string{
		"", "lease-0000000001", "-x-lease-0000000001", "-x0-lease-0000000001", "-x03-lease-0000000001", "-x-3-lease-0000000001",
		"-x+3-lease-0000000001", "-x1000000000-lease-0000000001", "-x99999999999999999999-lease-0000000001", "-x3-lock-0000000001",
		"_c_597de0d1-c10b-4e1e-a9f7-3a88a1fa7c26-lease-0000000001", "-x3-y-lease-0000000001",
	} {
		require.Equal(t, 1, weightOf(name), name)
	}
}

func TestLimitNames(t *testing.T) {
	for _, sequence := range []int32{0, 7, math.MaxInt32, math.MinInt32, -1} {
		n, changed, ok := StoredLimit([]string{"x", limitName(12, sequence), lease(3, 1)})
		require.True(t, ok)
		require.Equal(t, 12, n)
		require.Equal(t, sequence, changed)
	}
	for _, name := range []string{
		"", "limit-", "limit-7", "limit-7-", "limit-7-1", "limit-07-0000000001", "limit-0-0000000001", "limit--7-0000000001",
		"limit-7-00000000012", "limit-7-9999999999", "limit-7-000000000x", "limit-1000000000-0000000001", "xlimit-7-0000000001",
	} {
		require.False(t, IsLimit(name), name)
	}
	n, _, _ := StoredLimit([]string{limitName(3, 1), limitName(5, 0), limitName(4, 2)})
	require.Equal(t, 4, n, "the newest")
	n, _, _ = StoredLimit([]string{limitName(3, math.MaxInt32), limitName(5, math.MinInt32)})
	require.Equal(t, 5, n, "also across the overflow")
	for _, name := range []string{limitName(3, 1), limitName(3, -1)} {
		_, ok := sequenceOf(name)
		require.False(t, ok, "it is no contender")
	}
}

// crowdOf must agree with sums over the sorted line, wherever the counter stands.
func TestCrowdAgreesWithOrder(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 2))
		base := int32(r.Uint32())
		var names []string
		for i := range int32(1 + r.IntN(10)) {
			names = append(names, lease(1+r.IntN(4), base+i*2))
		}
		limit, given := 1+r.IntN(12), 1+r.IntN(12)
		children := append([]string{"config", "x-0000000001"}, names...)
		changed := base + int32(r.IntN(22))
		stored := r.IntN(2) == 0
		if stored {
			children = append(children, limitName(limit, changed))
		} else {
			limit = given
		}
		r.Shuffle(len(children), func(i, j int) { children[i], children[j] = children[j], children[i] })
		ahead := 0
		for i, own := range names {
			weight, predecessor := weightOf(own), ""
			c := (&Room{Weight: weight, Limit: given})
			if i > 0 {
				predecessor = names[i-1]
			}
			got := c.crowdOf(own, predecessor, children, nil)
			want := crowd{
				fits: ahead+weight <= limit, over: weight > limit, followed: i < len(names)-1, next: ahead <= limit,
			}
			if sequence, _ := sequenceOf(predecessor); predecessor != "" && !want.next && stored {
				want.maybe = sequence-changed < 0
			}
			require.Equal(t, want, got, "seed %d, %d of %v, limit %d", seed, i, names, limit)
			ahead += weight
		}
		require.Equal(t, int64(ahead), Taken(children))
	}
}

func TestCrowdLeavesOutStrays(t *testing.T) {
	first, own := lease(2, 1), lease(1, 5)
	stray := lease(1, 3)
	prefixes := []string{stray[:len(stray)-10], own[:len(own)-10]}
	r := &Room{Weight: 1, Limit: 3}
	require.True(t, r.crowdOf(own, first, []string{own, stray, first}, prefixes).fits)
	require.False(t, r.crowdOf(own, first, []string{own, stray, first}, nil).fits)
	r.Everybody, r.Limit = true, 2
	require.True(t, r.crowdOf(own, first, []string{own, stray, first}, prefixes).fits)
	require.Equal(t, crowd{next: true}, r.crowdOf(own, first, []string{own, stray, first, "anything"}, prefixes))
}

func TestCrowdBehindAForeignContender(t *testing.T) {
	foreign, own := "_c_597de0d1-c10b-4e1e-a9f7-3a88a1fa7c26-lease-0000000002", lease(1, 5)
	c := (&Room{Weight: 1, Limit: 1}).crowdOf(own, foreign, []string{lease(1, 1), foreign, own}, nil)
	require.Equal(t, crowd{maybe: true}, c)
}

func FuzzWeightOf(f *testing.F) {
	f.Add(lease(3, 7))
	f.Add("-x-x3-lease-")
	f.Fuzz(func(t *testing.T, name string) {
		w := weightOf(name)
		require.True(t, w >= 1 && w <= MaxWeight)
		if w > 1 {
			require.True(t, strings.Contains(name, fmt.Sprintf("-x%d-lease-", w)))
		}
		if n, _, ok := limitOf(name); ok {
			require.True(t, n >= 1 && n <= MaxWeight)
		}
	})
}

func BenchmarkCrowd2000(b *testing.B) {
	names := make([]string, 2000)
	for i := range names {
		names[i] = lease(1+i%3, int32(i))
	}
	r := &Room{Weight: 1, Limit: 100}
	b.ReportAllocs()
	for b.Loop() {
		r.crowdOf(names[1000], names[999], names, nil)
	}
}
