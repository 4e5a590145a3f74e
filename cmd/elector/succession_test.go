package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSuccession(t *testing.T) {
	var s succession
	at := func(second int, token int64) time.Time {
		now := time.Unix(int64(second), 0)
		if token == 0 {
			s.observe(nil, now)
			return time.Time{}
		}
		p := &place{Token: token}
		s.observe(p, now)
		return p.LeadsSince
	}
	require.Zero(t, at(1, 7), "it was the leader before")
	require.Zero(t, at(2, 7))
	require.Equal(t, time.Unix(3, 0), at(3, 8))
	require.Equal(t, time.Unix(3, 0), at(4, 8))
	at(5, 0)
	require.Equal(t, time.Unix(6, 0), at(6, 9))
	s.interrupt()
	require.Equal(t, time.Unix(6, 0), at(7, 9), "it is still the same leadership")
	s.interrupt()
	require.Zero(t, at(8, 10))
}
