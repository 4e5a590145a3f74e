package line

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

const marker = "DONE"

func latch(sequence int32) string {
	return fmt.Sprintf("%s%010d", CuratorLatch.prefix(newGUID()), sequence)
}

func TestOrder(t *testing.T) {
	a, b, c := latch(9), fmt.Sprintf("%032x__lock__%010d", 1, 10), "le_0000000011"
	contenders, foreign, ended := Order([]string{"config", c, marker, b, "ABANDONED", a}, marker)
	require.Equal(t, []string{a, b, c}, contenders)
	require.ElementsMatch(t, []string{"config", "ABANDONED"}, foreign)
	require.True(t, ended)

	contenders, foreign, ended = Order(nil, marker)
	require.Empty(t, contenders)
	require.Empty(t, foreign)
	require.False(t, ended)
}

// The counter overflows from 2147483647 to -2147483648: those created after
// stand behind, though their names and numbers are smaller.
func TestOrderAcrossTheOverflow(t *testing.T) {
	var want []string
	for i := range 20 {
		want = append(want, latch(math.MaxInt32-9+int32(i)))
	}
	shuffled := append([]string(nil), want...)
	rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	got, _, _ := Order(shuffled, marker)
	require.Equal(t, want, got)

	for i, own := range want {
		s := view{endMarker: marker}.surroundingsOf(own, shuffled)
		require.True(t, s.present)
		if i == 0 {
			require.Empty(t, s.predecessor)
		} else {
			require.Equal(t, want[i-1], s.predecessor)
		}
		if i == len(want)-1 {
			require.Empty(t, s.follower)
		} else {
			require.Equal(t, want[i+1], s.follower)
		}
		require.Equal(t, i == 1, s.isSecond)
	}
}

func TestSurroundings(t *testing.T) {
	first, second, third, own, last := latch(1), latch(3), latch(4), latch(7), latch(8)
	prefix := CuratorLatch.prefix(newGUID())
	stray := prefix + "0000000005"

	s := view{endMarker: marker, prefixes: []string{prefix}}.surroundingsOf(own, []string{last, "config", own, stray, third, first, second})
	require.Equal(t, surroundings{listed: true, present: true, predecessor: third, follower: last, strays: []string{stray}}, s)

	s = view{endMarker: marker, prefixes: []string{prefix}}.surroundingsOf(own, []string{own, stray, first})
	require.True(t, s.isSecond, "a stray of the own candidacy does not stand in line")

	s = view{endMarker: marker}.surroundingsOf(own, []string{"0", marker})
	require.Equal(t, surroundings{listed: true, ended: true}, s)
}

// surroundingsOf must agree with the full order whatever the line.
func TestSurroundingsAgreeWithOrder(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		base := int32(r.Uint32())
		var names []string
		for i := range int32(1 + r.IntN(12)) {
			names = append(names, latch(base+i*3+int32(r.IntN(3))))
		}
		order, _, _ := Order(names, marker)
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for i, own := range order {
			s := view{endMarker: marker}.surroundingsOf(own, names)
			require.Equal(t, i == 0, s.predecessor == "", "seed %d", seed)
			require.Equal(t, i == 1, s.isSecond, "seed %d", seed)
			if i > 0 {
				require.Equal(t, order[i-1], s.predecessor, "seed %d", seed)
			}
		}
	}
}

func BenchmarkSurroundings2000(b *testing.B) {
	names := make([]string, 2000)
	for i := range names {
		names[i] = latch(int32(i))
	}
	prefixes := []string{names[1000][:45]}
	b.ReportAllocs()
	for b.Loop() {
		view{prefixes: prefixes, endMarker: marker}.surroundingsOf(names[1000], names)
	}
}
