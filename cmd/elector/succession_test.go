package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSuccession_RecordsWhenLeadershipsBegan checks that succession records when each leadership began, and records
// no time if observations are missing before it.
func TestSuccession_RecordsWhenLeadershipsBegan(t *testing.T) {
	var s succession
	observe := func(second int, token int64) time.Time {
		now := time.Unix(int64(second), 0)
		if token == 0 {
			s.observe(nil, now)
			return time.Time{}
		}
		c := &candidateInfo{Token: token}
		s.observe(c, now)
		return c.LeadsSince
	}
	require.Zero(t, observe(1, 7), "the first observed leader may have led before")
	require.Zero(t, observe(2, 7))
	require.Equal(t, time.Unix(3, 0), observe(3, 8))
	require.Equal(t, time.Unix(3, 0), observe(4, 8))
	observe(5, 0)
	require.Equal(t, time.Unix(6, 0), observe(6, 9))
	s.recordInterruption()
	require.Equal(t, time.Unix(6, 0), observe(7, 9), "the leadership is the same")
	s.recordInterruption()
	require.Zero(t, observe(8, 10))
}
