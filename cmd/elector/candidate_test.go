package main

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStreamLeaders_SendsEachChangeOnce checks that streamLeaders sends each change of the leader once, and closes
// its channel after an error or when its context is done.
func TestStreamLeaders_SendsEachChangeOnce(t *testing.T) {
	a, b := candidateInfo{Name: "a", Token: 1}, candidateInfo{Name: "b", Token: 2}
	failure := errors.New("connection lost")
	ended := false
	stream := streamLeaders(t.Context(), func(yield func(*candidateInfo, error) bool) {
		defer func() { ended = true }()
		for _, leader := range []*candidateInfo{nil, nil, &a, {Name: "a", Token: 1}, &b, nil} {
			require.True(t, yield(leader, nil))
		}
		require.False(t, yield(nil, failure))
	})
	var got []observation
	for o := range stream {
		got = append(got, o)
	}
	require.Equal(t, []observation{{}, {leader: &a}, {leader: &b}, {}, {err: failure}}, got)
	require.True(t, ended)

	ctx, cancel := context.WithCancel(t.Context())
	stream = streamLeaders(ctx, func(yield func(*candidateInfo, error) bool) {
		for yield(&a, nil) && yield(&b, nil) {
		}
	})
	<-stream
	cancel()
	for range stream { // the loop ends only if the channel is closed
	}
}
