package changefeed_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/memory"
)

// TestNewElection_RejectsInvalidOptions checks that an invalid option is rejected with an error that
// describes it, and that the store does not change.
func TestNewElection_RejectsInvalidOptions(t *testing.T) {
	var nilContext context.Context
	store := memory.NewTable().Store("election")
	for message, opts := range map[string][]changefeed.Option{
		"an option is nil":       {nil},
		"WithContext(nil)":       {changefeed.WithContext(nilContext)},
		"WithLogger(nil)":        {changefeed.WithLogger(nil)},
		"WithHeartbeat(0s)":      {changefeed.WithHeartbeat(0)},
		"WithHeartbeat(-1s)":     {changefeed.WithHeartbeat(-time.Second)},
		"WithHeartbeat(48h0m0s)": {changefeed.WithHeartbeat(48 * time.Hour)},
		"at least two heartbeats": {
			changefeed.WithElectionTimeout(1500*time.Millisecond, 4*time.Second),
		},
		"WithElectionTimeout(0s, 0s)":           {changefeed.WithElectionTimeout(0, 0)},
		"WithLease(-2s)":                        {changefeed.WithLease(-2 * time.Second), changefeed.WithStopGuard(math.MaxInt64)},
		"must be positive and at most":          {changefeed.WithLease(math.MaxInt64)},
		"the second must be greater":            {changefeed.WithElectionTimeout(3*time.Second, 3*time.Second)},
		"the second is too long":                {changefeed.WithElectionTimeout(3*time.Second, math.MaxInt64)},
		"too short for a heartbeat":             {changefeed.WithLease(1500 * time.Millisecond)},
		"a safety margin of 1s":                 {changefeed.WithStopGuard(time.Second)},
		"must not be negative":                  {changefeed.WithStopGuard(-1)},
		"exceeds the shortest election timeout": {changefeed.WithLease(1800 * time.Millisecond)},
		"must be between 0 and 0.5":             {changefeed.WithClockDrift(math.NaN())},
		"WithID: the ID is empty":               {changefeed.WithID("")},
		"the limit is 4000":                     {changefeed.WithID(strings.Repeat("x", changefeed.MaxID+1))},
		`"a\nb" is not UTF-8 text without`:      {changefeed.WithID("a\nb")},
		`\xff`:                                  {changefeed.WithID("\xff")},
	} {
		_, err := changefeed.NewElection(store, opts...)
		require.ErrorIs(t, err, leaderelection.ErrInvalid)
		require.ErrorContains(t, err, message)
		require.ErrorIs(t, changefeed.DeleteElection(store, opts...), leaderelection.ErrInvalid)
		_, err = store.Read(t.Context())
		require.ErrorIs(t, err, changefeed.ErrNoRecord, "the store was changed")
	}
	// A great clock drift needs longer election timeouts than the defaults. The error must say so.
	_, err := changefeed.NewElection(store, changefeed.WithClockDrift(0.4))
	require.ErrorIs(t, err, leaderelection.ErrInvalid)
	require.ErrorContains(t, err, "use a longer lease")
	_, err = changefeed.NewElection(store, changefeed.WithClockDrift(0.4), changefeed.WithElectionTimeout(4*time.Second, 8*time.Second))
	require.NoError(t, err)
}

// TestNewElection_DoesNotChangeOptions checks that NewElection does not change options, so that they have the
// same effect when they are used again.
func TestNewElection_DoesNotChangeOptions(t *testing.T) {
	opts := []changefeed.Option{
		changefeed.WithHeartbeat(50 * time.Millisecond), changefeed.WithElectionTimeout(300*time.Millisecond, 900*time.Millisecond),
	}
	for range 2 {
		e, err := changefeed.NewElection(memory.NewTable().Store("election"), opts...)
		require.NoError(t, err)
		cfg := changefeed.Config(e)
		require.Equal(t, 50*time.Millisecond, cfg.Heartbeat)
		require.Equal(t, 300*time.Millisecond, cfg.ElectionMin)
		require.Equal(t, 900*time.Millisecond, cfg.ElectionMax)
		require.NoError(t, e.Resign())
	}
}
