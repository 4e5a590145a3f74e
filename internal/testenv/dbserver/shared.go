//go:build unix

package dbserver

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// Shared is a server that the tests of a package have in common. The first that needs it
// starts it.
type Shared struct {
	Start func() (*Server, error)

	once   sync.Once
	server *Server
	err    error
}

// Get returns the server. Without the database the test is skipped, or fails if
// ZKTEST_REAL=required.
func (s *Shared) Get(t testing.TB) *Server {
	t.Helper()
	s.once.Do(func() { s.server, s.err = s.Start() })
	if errors.Is(s.err, ErrMissing) && os.Getenv("ZKTEST_REAL") != "required" {
		t.Skipf("NOT TRIED: %v", s.err)
	}
	if s.err != nil {
		t.Fatalf("the server does not start: %v", s.err)
	}
	return s.server
}

// Tests is m, whose Run closes the server at the end.
func (s *Shared) Tests(m *testing.M) interface{ Run() int } { return tests{m, s} }

type tests struct {
	*testing.M
	shared *Shared
}

func (t tests) Run() int {
	code := t.M.Run()
	if t.shared.server == nil {
		return code
	}
	if err := t.shared.server.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}
