package zktest_test

import (
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestConnectAfterClose(t *testing.T) {
	s, err := zktest.New()
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	s.Close()
	if _, _, err := s.Connect(time.Second); err == nil {
		t.Error("no error")
	}
	if _, err := s.Listen(); err == nil {
		t.Error("it listens")
	}
}

// TestCloseWhileConnecting: Close also closes clients that come at the last moment;
// one that was forgotten would go on dialing.
func TestCloseWhileConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			s, err := zktest.New()
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					if _, _, err := s.Connect(time.Second); err != nil && !errors.Is(err, net.ErrClosed) {
						t.Error(err)
					}
				})
			}
			s.Close()
			wg.Wait()
		}
	})
}
