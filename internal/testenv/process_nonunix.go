//go:build !unix

package testenv

import (
	"errors"
	"os"
)

// PauseProcess is not supported.
func PauseProcess(*os.Process) error { return errors.ErrUnsupported }

// ResumeProcess is not supported.
func ResumeProcess(*os.Process) error { return errors.ErrUnsupported }

func processExists(int) bool { return true }
