package queue

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
)

func TestParse(t *testing.T) {
	type want struct {
		priority, due int64
		sequence      int32
	}
	plain := int64(noPriority)
	for name, w := range map[string]*want{
		"queue-0000000042":              {plain, 0, 42},
		"queue-2147483647":              {plain, 0, math.MaxInt32},
		"queue--000000005":              {plain, 0, -5},
		"queue--2147483648":             {plain, 0, math.MinInt32},
		"queue-1000000050000000042":     {5, 0, 42},
		"queue-17FFFFFFF0000000042":     {math.MaxInt32, 0, 42},
		"queue-0FFFFFFFF0000000042":     {-1, 0, 42},
		"queue-080000000-000000042":     {math.MinInt32, 0, -42},
		"queue-100000005-2147483648":    {5, 0, math.MinInt32},
		"queue-|0000ABCD|0000000042":    {plain, 0xABCD, 42},
		"queue-|19A3F5C2E80|-00000042":  nil,
		"queue-|19A3F5C2E80|-000000042": {plain, 0x19A3F5C2E80, -42},
		"queue-|some id|0000000042":     {plain, 0, 42},
		"queue-|0000000042":             nil,
		"queue-":                        nil,
		"queue-42":                      nil,
		"queue-00000000x2":              nil,
		"queue-9999999999":              nil,
		"queue-2000000050000000042":     nil,
		"queue-10000000G0000000042":     nil,
		"entry-100-0000000042":          nil,
		"_c_x-queue-0000000042":         nil,
		"lock-0000000042":               nil,
	} {
		e, ok := parse(recipes.Curator, name)
		require.Equal(t, w != nil, ok, name)
		if w != nil {
			require.Equal(t, entry{name, w.priority, w.due, w.sequence}, e)
		}
	}
	for name, w := range map[string]*want{
		"entry-100-0000000042":  {100, 0, 42},
		"entry-000-0000000042":  {0, 0, 42},
		"entry-007--000000042":  {7, 0, -42},
		"entry-007--2147483648": {7, 0, math.MinInt32},
		"entry-0070000000042":   nil,
		"entry-07-0000000042":   nil,
		"entry-x07-0000000042":  nil,
		"entry-0000000042":      nil,
		"queue-0000000042":      nil,
	} {
		e, ok := parse(recipes.Kazoo, name)
		require.Equal(t, w != nil, ok, name)
		if w != nil {
			require.Equal(t, entry{name, w.priority, w.due, w.sequence}, e)
		}
	}
}

// What is written is what is read.
func TestPrefix(t *testing.T) {
	for _, n := range []int{0, 1, -1, 5, math.MaxInt32, math.MinInt32} {
		prefix, err := placement{priority: n, hasPriority: true}.prefix(recipes.Curator)
		require.NoError(t, err)
		e, ok := parse(recipes.Curator, prefix+"0000000007")
		require.True(t, ok)
		require.Equal(t, entry{prefix + "0000000007", int64(n), 0, 7}, e)
	}
	prefix, err := placement{due: 1_800_000_000_000}.prefix(recipes.Curator)
	require.NoError(t, err)
	require.Equal(t, "queue-|1A3185C5000|", prefix)
	prefix, err = placement{}.prefix(recipes.Curator)
	require.NoError(t, err)
	require.Equal(t, "queue-", prefix)
	prefix, err = placement{}.prefix(recipes.Kazoo)
	require.NoError(t, err)
	require.Equal(t, "entry-100-", prefix)
	prefix, err = placement{priority: 7, hasPriority: true}.prefix(recipes.Kazoo)
	require.NoError(t, err)
	require.Equal(t, "entry-007-", prefix)

	for _, p := range []struct {
		placement
		layout recipes.Layout
	}{
		{placement{priority: 1000, hasPriority: true}, recipes.Kazoo},
		{placement{priority: -1, hasPriority: true}, recipes.Kazoo},
		{placement{due: 1}, recipes.Kazoo},
		{placement{due: 1, hasPriority: true}, recipes.Curator},
		{placement{priority: tooLarge(), hasPriority: true}, recipes.Curator},
	} {
		if p.priority == math.MaxInt {
			continue // no int is too large on this platform
		}
		_, err := p.prefix(p.layout)
		require.ErrorIs(t, err, recipes.ErrInvalidOption, "%v", p)
	}
}

func TestOrder(t *testing.T) {
	ordered := []string{
		"queue-2147483646", "queue-2147483647", "queue--2147483648", "queue--2147483647",
		"queue-|0000ABCD|2147483647", "queue-|0000ABCD|-2147483648", "queue-|0000ABCE|2147483640",
		"queue-080000000-000000005", "queue-0FFFFFFFF2147483647", "queue-1000000000000000001",
		"queue-1000000052147483647", "queue-100000005-2147483648", "queue-1000000060000000001",
	}
	var entries []entry
	for _, name := range ordered {
		e, ok := parse(recipes.Curator, name)
		require.True(t, ok, name)
		entries = append(entries, e)
	}
	for i, a := range entries {
		for j, b := range entries {
			require.Equal(t, i < j, compare(a, b) < 0, "%s %s", a.name, b.name)
		}
	}
	slices.Reverse(entries)
	slices.SortFunc(entries, compare)
	for i, e := range entries {
		require.Equal(t, ordered[i], e.name)
	}
}

func TestPayload(t *testing.T) {
	for _, parts := range [][][]byte{nil, {[]byte("x")}, {[]byte("one"), {}, []byte("three")}} {
		raw := encode(parts...)
		read, err := decode(raw)
		require.NoError(t, err)
		require.Equal(t, len(parts), len(read))
		for i := range parts {
			require.Equal(t, string(parts[i]), string(read[i]))
		}
		for n := range raw {
			_, err := decode(raw[:n])
			require.ErrorIs(t, err, errMalformed, "%d bytes", n)
		}
	}
	// As Curator's ItemSerializer writes it.
	require.Equal(t, []byte{0, 1, 0, 1, 1, 0, 0, 0, 3, 'a', 'b', 'c', 2}, encode([]byte("abc")))
	for _, raw := range [][]byte{{0, 1, 0, 2, 2}, {0, 1, 0, 1, 3}, {0, 1, 0, 1, 1, 0xff, 0xff, 0xff, 0xff, 2}} {
		_, err := decode(raw)
		require.ErrorIs(t, err, errMalformed)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode([]byte("abc")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if parts, err := decode(raw); err == nil {
			again := encode(parts...)
			require.Equal(t, again, raw[:len(again)])
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("queue-0000000042")
	f.Fuzz(func(t *testing.T, name string) {
		parse(recipes.Curator, name)
		parse(recipes.Kazoo, name)
	})
}

// tooLarge returns a priority that does not fit into a name, or the largest int if all ints
// do.
func tooLarge() int { return int(min(math.MaxInt32+1, int64(math.MaxInt))) }
