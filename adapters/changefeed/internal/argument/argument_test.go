package argument

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// TestApplyOptions fails if an option is not applied, or if a nil option or an error of an option
// is not reported as an invalid option.
func TestApplyOptions(t *testing.T) {
	type option func(*int) error
	increment := func(n *int) error { *n++; return nil }
	n := 0
	require.NoError(t, ApplyOptions(&n, []option{increment, increment}))
	require.Equal(t, 2, n)
	require.ErrorIs(t, ApplyOptions(&n, []option{nil}), leaderelection.ErrInvalidOption)
	failure := errors.New("failure")
	err := ApplyOptions(&n, []option{func(*int) error { return failure }})
	require.ErrorIs(t, err, leaderelection.ErrInvalidOption)
	require.ErrorIs(t, err, failure)
}

// TestSetQuietTime fails if a time is accepted that is too short.
func TestSetQuietTime(t *testing.T) {
	quiet := time.Second
	require.ErrorIs(t, SetQuietTime(&quiet, 9*time.Millisecond), leaderelection.ErrInvalidOption)
	require.Equal(t, time.Second, quiet)
	require.NoError(t, SetQuietTime(&quiet, 10*time.Millisecond))
	require.Equal(t, 10*time.Millisecond, quiet)
}

// TestCheckText fails if a text is accepted that a database would reject or truncate.
func TestCheckText(t *testing.T) {
	require.NoError(t, CheckText("key", "漢字", 6))
	for _, text := range []string{"", "\xff", "a\x00b", "漢字 "} {
		require.ErrorIs(t, CheckText("key", text, 6), leaderelection.ErrInvalidOption, "%q", text)
	}
	require.NoError(t, CheckText("key", "漢字 ", Unlimited))
	require.ErrorIs(t, CheckText("key", "", Unlimited), leaderelection.ErrInvalidOption)
}
