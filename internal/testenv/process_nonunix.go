//go:build !unix

package testenv

import (
	"errors"
	"os"
)

// PauseProcess returns an error, because this system is not supported.
func PauseProcess(*os.Process) error { return errors.ErrUnsupported }

// ResumeProcess returns an error, because this system is not supported.
func ResumeProcess(*os.Process) error { return errors.ErrUnsupported }

func processExists(int) bool { return true }
