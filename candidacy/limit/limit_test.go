package limit

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		begin := time.Now()
		require.False(t, Await(done, begin.Add(Confirm)))
		require.Equal(t, Confirm, time.Since(begin))
		time.AfterFunc(Confirm/2, func() { close(done) })
		require.True(t, Await(done, time.Now().Add(Confirm)))
		for range 100 {
			require.True(t, Await(done, begin), "an answer that is there counts, whatever the time")
		}
	})
}
