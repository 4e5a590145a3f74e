package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestParseStandbyNames_RejectsInvalidSettings checks that a valid setting is parsed correctly, and an
// invalid setting is rejected.
func TestParseStandbyNames_RejectsInvalidSettings(t *testing.T) {
	for setting, want := range map[string]struct {
		wait  int
		names []string
	}{
		"a":                          {1, []string{"a"}},
		" a , B ":                    {1, []string{"a", "b"}},
		"*":                          {1, []string{"*"}},
		"2 (a, b)":                   {2, []string{"a", "b"}},
		"FIRST 1 (a,b)":              {1, []string{"a", "b"}},
		"first 2 ( a, b, c )":        {2, []string{"a", "b", "c"}},
		"ANY 1 (a, *)":               {1, []string{"a", "*"}},
		`ANY 2 ("x, (y", "say ""z")`: {2, []string{"x, (y", `say "z`}},
		"first, any":                 {1, []string{"first", "any"}},
		`"first"`:                    {1, []string{"first"}},
	} {
		wait, names, err := parseStandbyNames(setting)
		require.NoError(t, err, setting)
		require.Equal(t, want.wait, wait, setting)
		require.Equal(t, want.names, names, setting)
	}
	for _, setting := range []string{"a b", "FIRST x (a)", "2 (a", "2 (a,)", `"a`, ",", "2 ()", "a (b)", "0 (a)", "-1 (a)"} {
		_, _, err := parseStandbyNames(setting)
		require.Error(t, err, setting)
	}
}

// TestUnsafeStandbys_RejectsCommitsThatDoNotWaitForAll checks that a setting with which a commit does not wait
// for all standbys is rejected.
func TestUnsafeStandbys_RejectsCommitsThatDoNotWaitForAll(t *testing.T) {
	for _, c := range []struct {
		setting                  string
		standbys, behind, hidden int
		safe                     bool
	}{
		{"", 0, 0, 0, true},
		{"", 1, 1, 0, false},
		{"", 1, 0, 0, false}, // The standby is not connected and has a slot, or the user does not see its state.
		{"a", 1, 0, 0, true},
		{"a", 0, 0, 0, true}, // no commit succeeds with this setting
		{"a", 2, 1, 0, false},
		{"a", 1, 1, 0, false}, // The standby that is connected is not a.
		{"a, b", 2, 1, 0, false},
		{"a, b", 1, 0, 0, false}, // Standby b can connect again, and then lacks writes.
		{"FIRST 1 (a, b)", 2, 1, 0, false},
		{"ANY 1 (a, b)", 2, 0, 0, false},
		{"FIRST 2 (a, b)", 2, 0, 0, true},
		{"FIRST 2 (a, b)", 2, 0, 1, false}, // The hidden standby may be a third server, while a or b is not connected.
		{"ANY 2 (a, b)", 2, 0, 0, true},
		{"ANY 2 (a, b)", 3, 0, 0, false},
		{"2 (a, a)", 2, 0, 0, true},
		{"*", 1, 0, 0, false},
		{"FIRST 2 (a, *)", 2, 0, 0, false},
		{"a b", 1, 0, 0, false},
	} {
		require.Equal(t, c.safe, unsafeStandbys(c.setting, c.standbys, c.behind, c.hidden) == "", c)
	}
}

// FuzzStandbyNames parses arbitrary settings. A setting that the parser accepts must contain names, and
// commits must wait for at least one standby.
func FuzzStandbyNames(f *testing.F) {
	f.Add("a, \"B\", c")
	f.Add("FIRST 2 (a, \"x\"\"y\", *)")
	f.Add("ANY 1 (first)")
	f.Add("0 (a)")
	f.Fuzz(func(t *testing.T, setting string) {
		wait, names, err := parseStandbyNames(setting)
		if err != nil {
			return
		}
		require.NotEmpty(t, names)
		require.GreaterOrEqual(t, wait, 1)
		for _, name := range names {
			require.LessOrEqual(t, len(name), 3*len(setting)) // the lower case of some letters has more bytes
		}
	})
}
