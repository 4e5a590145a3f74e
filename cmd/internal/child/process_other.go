//go:build !unix

package child

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

var errPlatform = fmt.Errorf("running programs: %w on this system", errors.ErrUnsupported)

// Process is not used on this system.
type Process struct{}

// RunWatchdog does nothing.
func RunWatchdog() {}

// ReserveDescriptors returns an error.
func ReserveDescriptors() (limit uint64, err error) { return 0, errPlatform }

// Start returns an error.
func Start(Command) (*Process, error) { return nil, errPlatform }

// Run returns an error.
func Run(context.Context, Command) error { return errPlatform }

func (*Process) Signal(syscall.Signal) error { return errPlatform }
func (*Process) Stop()                       {}
func (*Process) Done() <-chan struct{}       { return nil }
func (*Process) Wait() Exit                  { return Exit{} }
