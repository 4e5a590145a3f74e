package queue

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
	"github.com/go-leaderelection/leaderelection/recipes"
)

// TestParseName_ParsesBothLayouts checks that parseName parses the names of items in both layouts, and rejects
// other names.
func TestParseName_ParsesBothLayouts(t *testing.T) {
	const plain = noPriority
	for name, want := range map[string]*entry{
		"queue-0000000042":              {"", plain, 0, 42},
		"queue-2147483647":              {"", plain, 0, math.MaxInt32},
		"queue--000000005":              {"", plain, 0, -5},
		"queue--2147483648":             {"", plain, 0, math.MinInt32},
		"queue-1000000050000000042":     {"", 5, 0, 42},
		"queue-17FFFFFFF0000000042":     {"", math.MaxInt32, 0, 42},
		"queue-0FFFFFFFF0000000042":     {"", -1, 0, 42},
		"queue-080000000-000000042":     {"", math.MinInt32, 0, -42},
		"queue-100000005-2147483648":    {"", 5, 0, math.MinInt32},
		"queue-|0000ABCD|0000000042":    {"", plain, 0xABCD, 42},
		"queue-|19A3F5C2E80|-00000042":  nil,
		"queue-|19A3F5C2E80|-000000042": {"", plain, 0x19A3F5C2E80, -42},
		"queue-|some id|0000000042":     {"", plain, 0, 42},
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
		requireParsed(t, recipe.Curator, name, want)
	}
	for name, want := range map[string]*entry{
		"entry-100-0000000042":  {"", 100, 0, 42},
		"entry-000-0000000042":  {"", 0, 0, 42},
		"entry-007--000000042":  {"", 7, 0, -42},
		"entry-007--2147483648": {"", 7, 0, math.MinInt32},
		"entry-0070000000042":   nil,
		"entry-07-0000000042":   nil,
		"entry-x07-0000000042":  nil,
		"entry-0000000042":      nil,
		"queue-0000000042":      nil,
	} {
		requireParsed(t, recipe.Kazoo, name, want)
	}
}

// requireParsed requires that parseName returns want, except for the name, or rejects the name if want is
// nil.
func requireParsed(t *testing.T, layout recipe.Layout, name string, want *entry) {
	t.Helper()
	e, ok := parseName(layout, name)
	require.Equal(t, want != nil, ok, name)
	if want != nil {
		want.name = name
		require.Equal(t, *want, e)
	}
}

// TestPosition_PrefixEncodesPriorityAndTime checks that prefix encodes the priority or the time of an item such
// that parseName decodes it, and rejects invalid positions.
func TestPosition_PrefixEncodesPriorityAndTime(t *testing.T) {
	for _, n := range []int{0, 1, -1, 5, math.MaxInt32, math.MinInt32} {
		prefix, err := position{priority: n, hasPriority: true}.prefix(recipe.Curator)
		require.NoError(t, err)
		e, ok := parseName(recipe.Curator, prefix+"0000000007")
		require.True(t, ok)
		require.Equal(t, entry{prefix + "0000000007", int64(n), 0, 7}, e)
	}
	tooLarge := int(min(math.MaxInt32+1, int64(math.MaxInt)))
	for _, test := range []struct {
		position position
		layout   recipe.Layout
		want     string // the encoded position; empty if the position is invalid
	}{
		{position{}, recipe.Curator, "queue-"},
		{position{due: 1_800_000_000_000}, recipe.Curator, "queue-|1A3185C5000|"},
		{position{due: 1, hasPriority: true}, recipe.Curator, ""},
		{position{priority: tooLarge, hasPriority: true}, recipe.Curator, ""},
		{position{}, recipe.Kazoo, "entry-100-"},
		{position{priority: 7, hasPriority: true}, recipe.Kazoo, "entry-007-"},
		{position{priority: 1000, hasPriority: true}, recipe.Kazoo, ""},
		{position{priority: -1, hasPriority: true}, recipe.Kazoo, ""},
		{position{due: 1}, recipe.Kazoo, ""},
	} {
		if test.position.priority == math.MaxInt {
			continue // on this platform every int fits into 32 bits
		}
		prefix, err := test.position.prefix(test.layout)
		require.Equal(t, test.want, prefix)
		if test.want == "" {
			require.ErrorIs(t, err, recipes.ErrInvalid, "%+v", test)
		} else {
			require.NoError(t, err, "%+v", test)
		}
	}
}

// TestCompareEntries_OrdersByPriorityTimeAndNumber checks that compareEntries orders items by priority, due
// time and sequence number, also across the overflow of the sequence number.
func TestCompareEntries_OrdersByPriorityTimeAndNumber(t *testing.T) {
	ordered := []string{
		"queue-2147483646", "queue-2147483647", "queue--2147483648", "queue--2147483647",
		"queue-|0000ABCD|2147483647", "queue-|0000ABCD|-2147483648", "queue-|0000ABCE|2147483640",
		"queue-080000000-000000005", "queue-0FFFFFFFF2147483647", "queue-1000000000000000001",
		"queue-1000000052147483647", "queue-100000005-2147483648", "queue-1000000060000000001",
	}
	var entries []entry
	for _, name := range ordered {
		e, ok := parseName(recipe.Curator, name)
		require.True(t, ok, name)
		entries = append(entries, e)
	}
	for i, a := range entries {
		for j, b := range entries {
			require.Equal(t, i < j, compareEntries(a, b) < 0, "%s %s", a.name, b.name)
		}
	}
	slices.Reverse(entries)
	slices.SortFunc(entries, compareEntries)
	for i, e := range entries {
		require.Equal(t, ordered[i], e.name)
	}
}

// FuzzParseName checks that parseName does not panic, whatever the name is.
func FuzzParseName(f *testing.F) {
	f.Add("queue-0000000042")
	f.Fuzz(func(t *testing.T, name string) {
		parseName(recipe.Curator, name)
		parseName(recipe.Kazoo, name)
	})
}
