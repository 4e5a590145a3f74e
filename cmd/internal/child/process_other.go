//go:build !unix

package child

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

var errPlatform = fmt.Errorf("running programs: %w on this system", errors.ErrUnsupported)

// Process exists only so that programs compile on this system.
type Process struct{}

// RunWatchdog does nothing on this system.
func RunWatchdog() {}

// ReserveDescriptors returns an error that wraps errors.ErrUnsupported.
func ReserveDescriptors() (limit uint64, err error) { return 0, errPlatform }

// Start returns an error that wraps errors.ErrUnsupported.
func Start(Command) (*Process, error) { return nil, errPlatform }

// Run returns an error that wraps errors.ErrUnsupported.
func Run(context.Context, Command) error { return errPlatform }

func (*Process) Signal(syscall.Signal) error { return errPlatform }
func (*Process) Stop()                       {}
func (*Process) Done() <-chan struct{}       { return nil }
func (*Process) Wait() Exit                  { return Exit{} }
