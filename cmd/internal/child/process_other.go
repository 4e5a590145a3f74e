//go:build !unix

package child

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

var errPlatform = fmt.Errorf("running programs: %w on this system", errors.ErrUnsupported)

// Process is what Start would return.
type Process struct{}

// Guard does nothing.
func Guard() {}

// Start returns an error.
func Start(Command) (*Process, error) { return nil, errPlatform }

// Run returns an error.
func Run(context.Context, Command) error { return errPlatform }

func (*Process) Signal(syscall.Signal) error { return errPlatform }
func (*Process) Stop()                       {}
func (*Process) Done() <-chan struct{}       { return nil }
func (*Process) Wait() Exit                  { return Exit{} }
