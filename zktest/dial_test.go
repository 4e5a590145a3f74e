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

// TestConnect_AfterClose fails if Connect or Listen succeed after Close.
func TestConnect_AfterClose(t *testing.T) {
	s, err := zktest.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	s.Close()
	if _, _, err := s.Connect(time.Second); err == nil {
		t.Error("Connect succeeds")
	}
	if _, err := s.Listen(); err == nil {
		t.Error("Listen succeeds")
	}
}

// TestConnect_DuringClose fails if Close does not close a client that connects at the same time: the
// client would continue to dial.
func TestConnect_DuringClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			s, err := zktest.NewServer()
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
