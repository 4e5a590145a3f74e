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

// TestConnect_AfterClose checks that Connect and Listen fail after Close.
func TestConnect_AfterClose(t *testing.T) {
	s, err := zktest.NewServer()
	require.NoError(t, err)
	s.Close()
	s.Close()
	_, _, err = s.Connect(time.Second)
	assert.Error(t, err, "Connect succeeds")
	_, err = s.Listen()
	assert.Error(t, err, "Listen succeeds")
}

// TestConnect_DuringClose checks that Close closes a client that connects at the same time: otherwise the
// client would continue to dial.
func TestConnect_DuringClose(t *testing.T) {
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
