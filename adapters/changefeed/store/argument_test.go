package store

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

type option interface{ apply(*int) error }

type optionFunc func(*int) error

func (f optionFunc) apply(n *int) error { return f(n) }

// TestApplyOptions_ReportsInvalidOptions checks that ApplyOptions applies options, and reports a nil option,
// and an option that returns an error, as an invalid option.
func TestApplyOptions_ReportsInvalidOptions(t *testing.T) {
	increment := optionFunc(func(n *int) error { *n++; return nil })
	n := 0
	require.NoError(t, ApplyOptions(&n, []option{increment, increment}, option.apply))
	require.Equal(t, 2, n)
	require.ErrorIs(t, ApplyOptions(&n, []option{nil}, option.apply), leaderelection.ErrInvalid)
	failure := errors.New("failure")
	err := ApplyOptions(&n, []option{optionFunc(func(*int) error { return failure })}, option.apply)
	require.ErrorIs(t, err, leaderelection.ErrInvalid)
	require.ErrorIs(t, err, failure)
}

// TestSetQuietTime_RejectsExtremeTimes checks that SetQuietTime rejects a time that is too short, or so long
// that its multiples overflow.
func TestSetQuietTime_RejectsExtremeTimes(t *testing.T) {
	quiet := time.Second
	for _, d := range []time.Duration{9 * time.Millisecond, 48*time.Hour + 1, math.MaxInt64} {
		require.ErrorIs(t, SetQuietTime(&quiet, d), leaderelection.ErrInvalid, d)
		require.Equal(t, time.Second, quiet)
	}
	for _, d := range []time.Duration{10 * time.Millisecond, 48 * time.Hour} {
		require.NoError(t, SetQuietTime(&quiet, d), d)
		require.Equal(t, d, quiet)
	}
}

// TestCheckText_RejectsUnsuitableText checks that CheckText rejects a text that a database would reject or
// truncate.
func TestCheckText_RejectsUnsuitableText(t *testing.T) {
	require.NoError(t, CheckText("key", "漢字", 6))
	for _, text := range []string{"", "\xff", "a\x00b", "a\nb", "漢字 "} {
		require.ErrorIs(t, CheckText("key", text, 6), leaderelection.ErrInvalid, "%q", text)
	}
	require.NoError(t, CheckText("key", "漢字 ", Unlimited))
	require.ErrorIs(t, CheckText("key", "", Unlimited), leaderelection.ErrInvalid)
}
