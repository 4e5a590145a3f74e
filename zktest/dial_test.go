package zktest_test

import (
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestConnect_FailsAfterClose checks that Connect and Listen return an error after Close.
func TestConnect_FailsAfterClose(t *testing.T) {
	s, err := zktest.NewServer()
	require.NoError(t, err)
	s.Close()
	s.Close()
	_, _, err = s.Connect(time.Second)
	assert.Error(t, err, "Connect succeeds after Close")
	_, err = s.Listen()
	assert.Error(t, err, "Listen succeeds after Close")
}

// TestClose_ClosesClientThatIsConnecting checks that Close closes a client that connects at the same time:
// otherwise the client would dial without an end.
func TestClose_ClosesClientThatIsConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			s, err := zktest.NewServer()
			require.NoError(t, err)
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					_, _, err := s.Connect(time.Second)
					assert.False(t, err != nil && !errors.Is(err, net.ErrClosed))
				})
			}
			s.Close()
			wg.Wait()
		}
	})
}
