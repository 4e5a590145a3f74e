//go:build unix

package dbserver

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// Shared is a server that all tests of a package use. The first call of Get starts it.
type Shared struct {
	Start func() (*Server, error)

	once   sync.Once
	server *Server
	err    error
}

// Get returns the server. If the database is not installed, Get skips the test, or fails it as
// [testenv.SkipMissing] does.
func (s *Shared) Get(t testing.TB) *Server {
	t.Helper()
	s.once.Do(func() { s.server, s.err = s.Start() })
	requireStarted(t, s.err)
	return s.server
}

// requireStarted ends the test if err, the error of a start, is not nil.
func requireStarted(t testing.TB, err error) {
	t.Helper()
	switch {
	case errors.Is(err, ErrMissing):
		testenv.SkipMissing(t, "the database", err)
	case err != nil:
		t.Fatalf("start a database server: %v", err)
	}
}

// StartServer starts a server that runs until the test ends. If the database is not installed, StartServer skips or
// fails the test as [Shared.Get] does.
func StartServer(t testing.TB, start func() (*Server, error)) *Server {
	t.Helper()
	s, err := start()
	requireStarted(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the database server: %v", err)
		}
	})
	return s
}

// Tests returns a wrapper of m. The method Run of the wrapper runs the tests, and closes the server afterwards.
func (s *Shared) Tests(m *testing.M) interface{ Run() int } { return closingRunner{m, s} }

type closingRunner struct {
	m      *testing.M
	shared *Shared
}

func (r closingRunner) Run() int {
	code := r.m.Run()
	if r.shared.server == nil {
		return code
	}
	if err := r.shared.server.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}
